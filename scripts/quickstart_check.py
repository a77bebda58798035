"""Start the engine, ask it one question over HTTP, print the answer, stop everything. Exit code 0 if all worked."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request

QUESTION = "What is the capital of France?"


def zmqengine(*args: str) -> str:
    """Run a command; its output. Its errors go to the terminal."""
    return subprocess.run(["zmqengine", *args], check=True, stdout=subprocess.PIPE, text=True).stdout


def ask(url: str, question: str) -> str:
    """The answer of the served model."""
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 64,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def main() -> int:
    # A name, a port and a run directory of its own: a check must not meet an engine that someone is using.
    run = "check"
    runtime = tempfile.mkdtemp(prefix="ze-", dir="/tmp")  # short: the paths of unix sockets are
    os.environ["ZMQENGINE_RUNTIME_DIR"] = runtime
    try:
        print(zmqengine("up", "llm", "--run", run, "--set", "api.port=0", "--detach"), end="", flush=True)
        url = next(s["url"] for s in json.loads(zmqengine("ps", "--run", run, "--json")) if s["name"] == "api")
        answer = ask(url, QUESTION)
        print(f"asked:    {QUESTION}\nanswered: {answer}")
    finally:
        subprocess.run(["zmqengine", "down", "--run", run], check=False)
    if "Paris" not in answer:
        print(f"that is not what the model says; the services' logs are in {runtime}", file=sys.stderr)
        return 1
    shutil.rmtree(runtime)
    return 0


if __name__ == "__main__":
    sys.exit(main())
