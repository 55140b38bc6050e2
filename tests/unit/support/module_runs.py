# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module's `main` as Ansible does, and hands back its result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args


class _Done(Exception):
    pass


def run_module(main: Callable[[], Any], **options: Any) -> dict[str, Any]:
    """The result with `failed` in it; `warned` has the warnings."""
    warned: list[str] = []

    def finish(_module: object, **result: Any) -> None:
        raise _Done({"failed": False, **result})

    def fail(_module: object, **result: Any) -> None:
        raise _Done({"failed": True, **result})

    def warn(_module: object, text: str) -> None:
        warned.append(text)

    with (
        patch_module_args(options),
        patch.object(basic.AnsibleModule, "exit_json", finish),
        patch.object(basic.AnsibleModule, "fail_json", fail),
        patch.object(basic.AnsibleModule, "warn", warn),
    ):
        try:
            main()
        except _Done as done:
            result: dict[str, Any] = done.args[0]
            json.dumps(result)
            return {**result, "warned": warned}
    raise AssertionError("The module ended without a result.")
