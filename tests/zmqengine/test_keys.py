"""Keys on disk are this user's alone, and what a folder says holds from the next handshake on."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from zmqengine.cli.main import group
from zmqengine.curve import KeyPair, check_key
from zmqengine.errors import ConfigError, NotFound
from zmqengine.keys import MAX_ALLOWED, KeyFolder, folder_of, user_folder


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    made = KeyFolder(tmp_path / "keys")
    made.generate()
    return made


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the runs are: short, for paths of unix sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ze-", dir="/tmp") as path:
        monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", path)
        yield Path(path)


@pytest.fixture
def home(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the command line: no key of the real user's is looked at."""
    monkeypatch.setenv("ZMQENGINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def other() -> str:
    return KeyPair.generate().public


def test_a_folder_and_its_files_are_this_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = KeyFolder(tmp_path / "keys")
        folder.generate()
        folder.allow(other(), "laptop")
    finally:
        os.umask(before)
    assert [mode(tmp_path / "keys"), mode(tmp_path / "keys/allowed")] == [0o700, 0o700]
    assert {path.name: mode(path) for path in (tmp_path / "keys").rglob("*.*")} == {
        "pair.json": 0o600, "laptop.key": 0o600,
    }  # fmt: skip


def test_the_secret_key_is_in_no_text_of_the_pair(folder: KeyFolder) -> None:
    pair = folder.pair()
    assert pair.public in repr(pair)
    assert pair.secret not in f"{pair!r} {pair}"


def test_a_pair_is_not_overwritten_unless_it_is_meant_to(folder: KeyFolder) -> None:
    first = folder.pair().public
    with pytest.raises(ConfigError, match="--replace"):
        folder.generate()
    assert folder.pair().public == first
    assert folder.generate(replace=True).public == folder.pair().public != first


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o644])
def test_a_secret_that_others_could_have_read_is_not_used(folder: KeyFolder, bits: int) -> None:
    path = folder.path / "pair.json"
    path.chmod(bits)
    with pytest.raises(ConfigError, match=f"can be read or changed by others.*chmod 600 {path}"):
        folder.pair()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"public": 1, "secret": 2}', '{"public": "a", "secret": "b"}', "\0"])
def test_a_damaged_pair_is_named_and_its_content_is_not(folder: KeyFolder, text: str) -> None:
    (folder.path / "pair.json").write_text(text)
    with pytest.raises(ConfigError, match=r"pair\.json"):
        folder.pair()


def test_two_halves_of_different_pairs_are_refused(folder: KeyFolder) -> None:
    secret = KeyPair.generate().secret
    (folder.path / "pair.json").write_text(json.dumps({"public": folder.pair().public, "secret": secret}))
    with pytest.raises(ConfigError, match="does not belong") as refused:
        folder.pair()
    assert secret not in str(refused.value)


def test_without_keys_one_is_told_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="zmqengine keys generate --run here"):
        KeyFolder(tmp_path, "here").pair()
    with pytest.raises(ConfigError, match=r"tcp://10.0.0.5:0 needs CURVE keys.*zmqengine keys generate`"):
        KeyFolder(tmp_path).server("tcp://10.0.0.5:0")


def test_keys_alone_do_not_serve_without_a_list_of_who_may_connect(folder: KeyFolder) -> None:
    with pytest.raises(ConfigError, match=r"needs a list of who may connect.*zmqengine keys allow"):
        folder.server("tcp://10.0.0.5:0")
    folder.allow(other())
    assert folder.server("tcp://10.0.0.5:0").pair.public == folder.pair().public


def test_who_is_allowed_is_read_anew_as_it_changes(folder: KeyFolder) -> None:
    one, two = other(), other()
    folder.allow(one)
    allows = folder.server("tcp://10.0.0.5:0").allows
    # Many changes within one tick of the file system's clock: none may be missed.
    for _ in range(50):
        assert [allows(one), allows(two)] == [True, False]
        folder.allow(two, "two")
        assert [allows(one), allows(two)] == [True, True]
        folder.revoke("two")
    assert allows(folder.pair().public), "what shares the folder may call one another"


def test_a_list_that_was_read_long_after_its_last_change_is_not_read_at_each_handshake(folder: KeyFolder) -> None:
    one = other()
    folder.allow(one)
    for path in (folder.path / "allowed", folder.path / "pair.json"):
        os.utime(path, (1, 1))
    assert folder.allows(one)
    path = folder.path / "allowed" / f"{folder.allowed()[0].name}.key"
    path.write_text("read again")  # a change in place, which `zmqengine keys` does not make
    assert folder.allows(one)
    path.unlink()
    assert not folder.allows(one)


def test_nobody_is_let_in_once_the_list_or_the_pair_is_gone(folder: KeyFolder) -> None:
    one = other()
    folder.allow(one)
    assert folder.allows(one)
    (folder.path / "pair.json").unlink()
    assert not folder.allows(one)


def test_a_file_of_the_list_that_is_damaged_or_open_to_others_lets_nobody_in(
    folder: KeyFolder, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad, forged = other(), other(), other()
    folder.allow(good, "good")
    folder.allow(bad, "bad")
    folder.allow(forged, "forged")
    (folder.path / "allowed/bad.key").write_text("nonsense")
    (folder.path / "allowed/forged.key").chmod(0o666)
    assert [folder.allows(key) for key in (good, bad, forged)] == [True, False, False]
    assert "bad.key lets nobody in" in caplog.text
    assert "forged.key lets nobody in" in caplog.text


def test_a_link_in_the_list_is_not_followed(folder: KeyFolder, tmp_path: Path) -> None:
    folder.allow(other(), "real")
    (tmp_path / "elsewhere").write_text(other() + "\n")
    (folder.path / "allowed/link.key").symlink_to(tmp_path / "elsewhere")
    assert [allowed.name for allowed in folder.allowed()] == ["real"]


def test_one_key_is_allowed_once_and_a_name_belongs_to_one_key(folder: KeyFolder) -> None:
    key = other()
    first = folder.allow(key)
    assert folder.allow(key) == first
    folder.allow(key, "again")
    with pytest.raises(ConfigError, match="another key has that name"):
        folder.allow(other(), "again")
    assert [allowed.public for allowed in folder.revoke(key)] == [key, key]
    with pytest.raises(NotFound, match="there are: none"):
        folder.revoke(key)


@pytest.mark.parametrize("name", ["../../etc/x", "a/b", "", ".", "-x", "x" * 65, "a b", "a\n"])
def test_a_name_cannot_leave_the_folder(folder: KeyFolder, name: str) -> None:
    if name:
        with pytest.raises(ConfigError, match="a key's name"):
            folder.allow(other(), name)
    with pytest.raises(NotFound):
        folder.revoke(name)
    assert list((folder.path / "allowed").glob("*")) == []


def test_a_list_has_a_bound(folder: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ALLOWED >= 1000
    monkeypatch.setattr("zmqengine.keys.MAX_ALLOWED", 1)
    folder.allow(other())
    with pytest.raises(ConfigError, match="no more are taken"):
        folder.allow(other())


@given(st.text(max_size=45))
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="not a CURVE key") as refused:
        check_key(text)
    assert len(text) < 20 or text not in str(refused.value)


@pytest.mark.parametrize("key", ["#" * 40, "0" * 39 + "~", "0" * 39, "0" * 41])
def test_keys_that_libzmq_would_not_decode_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="not a CURVE key"):
        check_key(key)


def test_a_run_uses_its_own_keys_and_the_users_where_it_has_none(home: Path, base: Path) -> None:
    run = base / "mine"
    assert folder_of(run).path == user_folder().path == home / "keys"
    own = KeyFolder(run / "keys", "mine")
    own.generate()
    assert folder_of(run).path == own.path
    assert folder_of(run).flag == " --run mine"


def test_the_users_folder_is_in_the_configuration_not_in_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZMQENGINE_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    assert user_folder().path == Path("/c/zmqengine/keys")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert user_folder().path == Path.home() / ".config/zmqengine/keys"


# The command line


def keys(*args: str) -> str:
    done = CliRunner().invoke(group, ["keys", *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_commands_make_show_allow_list_and_revoke(home: Path) -> None:
    made = keys("generate").strip()
    assert keys("show").strip() == made
    client = other()
    assert json.loads(keys("allow", client, "--name", "laptop", "--json")) == {"name": "laptop", "public": client}
    assert json.loads(keys("list", "--json")) == [{"name": "laptop", "public": client}]
    assert keys("list") == f"{client}  laptop\n"
    assert keys("revoke", "laptop") == "revoked laptop\n"
    assert json.loads(keys("list", "--json")) == []
    assert (home / "keys/pair.json").is_file()


def test_no_command_prints_the_secret(home: Path) -> None:
    said = CliRunner().invoke(group, ["keys", "generate", "--json"]).output
    secret = user_folder().pair().secret
    said += keys("show", "--json") + keys("show") + keys("list", "--json")
    assert secret not in said
    assert user_folder().pair().public in said


def test_keys_of_a_run_are_made_before_its_first_start(home: Path, base: Path) -> None:
    made = json.loads(keys("generate", "--run", "mine", "--json"))
    assert made["path"] == str(base / "mine/keys")
    assert json.loads(keys("show", "--run", "mine", "--json")) == made
    assert mode(base / "mine") == 0o700
    assert keys("list", "--run", "other") == ""
    assert not (base / "other").exists(), "to look makes nothing"
    assert not home.exists(), "the user's are not touched"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["show"], "keys generate"),
        (["allow", "x" * 40], "make them first, with `zmqengine keys generate`"),
        (["revoke", "nobody"], "there are: none"),
        (["generate", "--run", "../x"], "run's name"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_with_what_to_do(home: Path, args: list[str], words: str) -> None:
    with pytest.raises((ConfigError, NotFound), match=words):
        CliRunner().invoke(group, ["keys", *args], catch_exceptions=False)


def test_a_generated_key_is_never_taken_for_an_option() -> None:
    assert all(KeyPair.generate().public[0].isalnum() for _ in range(100))
