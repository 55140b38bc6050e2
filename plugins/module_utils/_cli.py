# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change at any time.

"""Commands of a managed host: an argument vector in, text out, never a shell, always the C locale."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import typing as t

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._io import Failure

# What a non-login shell of root may lack.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Result(t.NamedTuple):
    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str

    @property
    def command(self) -> str:
        return " ".join(shlex.quote(word) for word in self.argv)


class CommandFailed(Failure):
    """A command that ran and did not succeed, with all that is needed to run it again."""

    def __init__(self, result: Result, because: str | None = None) -> None:
        said = because or result.stderr.strip() or result.stdout.strip() or "no message"
        super().__init__(
            f"{result.command} exited with {result.rc}: {said}",
            cmd=list(result.argv),
            rc=result.rc,
            stdout=result.stdout,
            stderr=result.stderr,
        )
        self.result = result


class Cli:
    """Runs commands and remembers which."""

    def __init__(self, environ: t.Mapping[str, str] | None = None, timeout_s: float = 120) -> None:
        path = os.environ.get("PATH", "")
        self._environ = {
            **os.environ,
            "PATH": f"{path}:{_PATH}" if path else _PATH,
            "LC_ALL": "C",
            "LANG": "C",
            "LANGUAGE": "C",
            **(environ or {}),
        }
        self._timeout_s = timeout_s
        self.ran: list[str] = []

    def which(self, name: str) -> str | None:
        return shutil.which(name, path=self._environ["PATH"])

    def run(
        self, argv: t.Sequence[str], check: bool = True, stdin: str | None = None, timeout_s: float | None = None
    ) -> Result:
        """Run ``argv``; with ``check``, a status other than 0 raises :class:`CommandFailed`."""
        limit = self._timeout_s if timeout_s is None else timeout_s
        command = tuple(argv)
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=self._environ,
                timeout=limit,
                check=False,
            )
        except FileNotFoundError:
            raise Failure(
                f"Cannot run {command[0]}: there is no such command on this host", cmd=list(command)
            ) from None
        except subprocess.TimeoutExpired:
            raise Failure(
                f"{' '.join(map(shlex.quote, command))} did not end within {limit:g} s", cmd=list(command)
            ) from None
        except OSError as exc:
            raise Failure(f"Cannot run {command[0]}: {exc.strerror}", cmd=list(command)) from exc
        result = Result(command, done.returncode, done.stdout, done.stderr)
        self.ran.append(result.command)
        if check and result.rc != 0:
            raise CommandFailed(result)
        return result


__all__ = ("Cli", "CommandFailed", "Result")
