"""The process around a call of the command line."""

import pytest

import perdure.__main__ as process


class Ended(BaseException):
    """The process is gone."""


def test_an_interrupt_while_modules_are_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(name: str) -> object:
        raise KeyboardInterrupt

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(process, "import_module", interrupted)
    monkeypatch.setattr(process.os, "_exit", end)
    monkeypatch.setattr(process.gc, "set_threshold", lambda *numbers: None)
    with pytest.raises(Ended) as ended:
        process.main()
    assert ended.value.args == (130,)
