# Sourced by quickstart and test: makes sure that there is an environment with this repository installed in it.
#
# environment [EXTRAS]: takes the active virtual environment, or makes .venv; installs only what changed since last time.

environment() {
    local extras="${1:-}" root stamp wanted python
    root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
    cd "$root"
    if [ -z "${VIRTUAL_ENV:-}" ] || [ ! -x "${VIRTUAL_ENV:-}/bin/python" ]; then
        for python in python3 python; do
            command -v "$python" >/dev/null 2>&1 && break
        done
        if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            echo "error: Python 3.11 or newer is needed; '$python' is $("$python" --version 2>&1)" >&2
            return 1
        fi
        [ -x .venv/bin/python ] || "$python" -m venv .venv
        export VIRTUAL_ENV="$root/.venv"
        export PATH="$VIRTUAL_ENV/bin:$PATH"
    fi
    # The stamp stands for what was installed: it changes with the dependencies and with the place of the checkout.
    stamp="$VIRTUAL_ENV/.zmqengine-installed${extras:+-$extras}"
    wanted="$(cat setup.cfg pyproject.toml constraints.txt | cksum) $root"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "installing into $VIRTUAL_ENV (the first time takes a few minutes)" >&2
        "$VIRTUAL_ENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".${extras:+[$extras]}" || {
            echo "error: pip could not install the dependencies; its message stands above" >&2
            return 1
        }
        printf '%s' "$wanted" >"$stamp"
    fi
}
