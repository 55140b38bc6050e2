# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import typing as t
from pathlib import Path

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.plugins.inventory.ini import InventoryModule as IniInventory
from ansible.utils.display import Display

from ansible_collections.railyard.gpu_fabric.plugins.action.fabric_report import FILES
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts.gather import gather
from ansible_collections.railyard.gpu_fabric.plugins.module_utils._source import BundleSource
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import verdict
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.bundle_intent import Recorded, translate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.findings.engine import evaluate
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.intent import IntentError, lines
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.plan import plan_rack
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.report.build import build

display = Display()

# An earlier recording of the same rack; it is compared, not diagnosed.
EARLIER = "before"
# iblinkinfo of a fabric with ten thousand adapters has about 8 MiB.
TEXT_LIMIT = 32 * 1024 * 1024
TEXTS = frozenset({".log", ".txt", ".json", ".csv", ".xml", ".ini", ".yml", ".yaml"})
#: What a bundle has beside its hosts' folders.
OF_THE_RACK = frozenset({"inventory.ini", "vars.yml", "site.yml", EARLIER})
PHASES = ("preflight", "configure", "verify", "diagnose")


def inside(path: Path) -> bool:
    """Whether a file or folder of a bundle lies in it: nothing else on this machine is read, whatever a link says."""
    return path.resolve().is_relative_to(path.parent.resolve())


def read_text(path: Path) -> str | None:
    """The text of a recorded file; undecodable bytes are replaced, line ends are made alike."""
    try:
        if not inside(path) or not path.is_file() or path.stat().st_size > TEXT_LIMIT:
            return None
        return path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    except (OSError, RuntimeError) as error:
        display.warning(f"{path.name} of the bundle could not be read and was left out: {error}")
        return None


def host_directories(bundle: Path) -> dict[str, Path]:
    return {
        entry.name: entry
        for entry in sorted(bundle.iterdir())
        if entry.name != EARLIER and not entry.name.startswith(".") and _is_folder(entry)
    }


def _is_folder(entry: Path) -> bool:
    try:
        return inside(entry) and entry.is_dir()
    except (OSError, RuntimeError):  # links that lead to each other
        return False


def host_facts(directory: Path) -> dict[str, t.Any]:
    return gather(BundleSource(str(directory)), nic_config=True)


def read_yaml(path: Path, left_out: dict[str, str]) -> t.Any:
    text = read_text(path)
    if text is None:
        return None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        left_out[path.name] = f"it is not YAML: {' '.join(str(error).split())}"
        return None


def read_inventory(path: Path, left_out: dict[str, str]) -> dict[str, t.Any]:
    """Groups with their hosts, and each host's variables.

    A bundle is data from somebody else: its inventory is read as an INI file and never run as a script.
    """
    if read_text(path) is None:
        return {}
    data = InventoryData()
    try:
        IniInventory().parse(data, DataLoader(), str(path.resolve()))
        data.reconcile_inventory()
    except AnsibleError as error:
        left_out[path.name] = f"it is no INI inventory: {' '.join(str(error.message).split())}"
        return {}
    groups = {name: [host.name for host in group.get_hosts()] for name, group in data.groups.items()}
    return {
        "groups": {name: hosts for name, hosts in groups.items() if name not in ("all", "ungrouped") or hosts},
        "hosts": {
            host.name: {
                key: value
                for source in (*(group.get_vars() for group in reversed(host.get_groups())), host.get_vars())
                for key, value in source.items()
                if not key.startswith("inventory_") and key != "group_names"
            }
            for host in data.hosts.values()
        },
    }


def rack_outputs(bundle: Path) -> dict[str, t.Any]:
    """What was recorded for the rack as a whole: texts by file name, variables, inventory, plays."""
    outputs: dict[str, t.Any] = {}
    for entry in sorted(bundle.iterdir()):
        text = read_text(entry) if entry.suffix in TEXTS else None
        if text is not None:
            outputs[entry.name] = text
    left_out: dict[str, str] = {}
    variables = read_yaml(bundle / "vars.yml", left_out)
    if variables is not None and not isinstance(variables, dict):
        left_out["vars.yml"] = f"it is a {type(variables).__name__}, not a mapping of variables"
    outputs["vars"] = variables if isinstance(variables, dict) else {}
    outputs["inventory"] = read_inventory(bundle / "inventory.ini", left_out)
    plays = read_yaml(bundle / "site.yml", left_out)
    outputs["plays"] = [play for play in plays if isinstance(play, dict)] if isinstance(plays, list) else []
    outputs["left_out"] = left_out
    return outputs


def plan_of(
    facts: dict[str, t.Any], recorded: dict[str, Recorded], inventory: dict[str, t.Any]
) -> tuple[dict[str, t.Any] | None, list[str]]:
    """The plan, or why there is none."""
    if not facts:
        return None, []
    connection = {
        name: {"address": str(variables.get("ansible_host", name))}
        for name, variables in inventory.get("hosts", {}).items()
        if name in facts or not inventory.get("groups")
    }
    try:
        return plan_rack({name: recorded[name].planned for name in facts}, facts, connection), []
    except IntentError as error:
        return None, lines(error.problems)


def diagnose(bundle: Path) -> dict[str, t.Any]:
    """Facts, plan and findings of a bundle: ``{"facts", "plan", "findings"}``."""
    facts = {name: host_facts(directory) for name, directory in host_directories(bundle).items()}
    outputs = rack_outputs(bundle)
    inventory = outputs["inventory"]
    shared = translate(outputs["vars"])
    recorded = {name: translate({**outputs["vars"], **inventory.get("hosts", {}).get(name, {})}) for name in facts}
    plan, refused = plan_of(facts, recorded, inventory)
    outputs.update(said=shared.said, misspelt=shared.misspelt, refused=refused)
    earlier = bundle / EARLIER
    if earlier.is_dir():
        outputs[EARLIER] = {
            "outputs": rack_outputs(earlier),
            "facts": {name: host_facts(directory) for name, directory in host_directories(earlier).items()},
        }
    findings = evaluate(facts, plan, {name: recorded[name].said for name in facts}, outputs)
    return {"facts": facts, "plan": plan or {}, "findings": findings}


def refuse_what_is_no_bundle(bundle: Path, findings: t.Sequence[t.Mapping[str, t.Any]]) -> None:
    """A folder of bundles, say: nothing of it was judged, and that nothing was found must not pass for health."""
    folders = host_directories(bundle)
    of_the_rack = any(entry.name in OF_THE_RACK or entry.suffix in (".log", ".txt") for entry in bundle.iterdir())
    if not folders or of_the_rack or {finding["id"] for finding in findings} != {"RF-FACTS-NOTHING"}:
        return
    inner = [name for name, folder in folders.items() if host_directories(folder)]
    meant = f"; {' and '.join(inner[:5])} in it may be such" if inner else ""
    raise AnsibleActionFail(
        f"{bundle}: no folder in it ({', '.join(list(folders)[:5])}) has anything that was recorded of a host, so "
        f"nothing was judged. gpu_fabric_bundle names the folder that has one folder for each host{meant}"
    )


def report_of(found: dict[str, t.Any], title: str, created: str) -> dict[str, t.Any]:
    """report.json. A recording may know of GPUs by their number only; what has no address has no place in the tree."""
    facts = {
        name: {**data, "gpus": [gpu for gpu in data.get("gpus", []) if gpu.get("pci")]}
        for name, data in found["facts"].items()
    }
    plan = found["plan"] or {"rack": {"fabric": "", "rails": 0}, "hosts": {}}
    return build(facts, plan, found["findings"], created=created, title=title)


class ActionModule(ActionBase):
    """Documented in plugins/modules/bundle_diagnose.py. Runs on the controller and touches no host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result = super().run(tmp, task_vars)
        _valid, args = self.validate_argument_spec(
            argument_spec={
                "bundle": {"type": "path", "required": True},
                "report_dir": {"type": "path"},
            }
        )
        bundle = Path(args["bundle"]).resolve()
        # Beside the bundle: in it, it would be a host's folder.
        report_dir = Path(args["report_dir"] or f"{bundle}-report").resolve()
        if not bundle.is_dir():
            raise AnsibleActionFail(f"{bundle}: no such folder; gpu_fabric_bundle names the folder of a support bundle")
        found = diagnose(bundle)
        refuse_what_is_no_bundle(bundle, found["findings"])
        created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        report = report_of(found, f"Bundle {bundle.name}", created)
        if not self._task.check_mode:
            self.write(report_dir, report)
        paths = {kind: report_dir / f"report.{kind}" for kind in ("json", "html")}
        judged = verdict.judge(found["findings"], PHASES, ())
        for finding in judged.warnings:
            display.warning(verdict.sentence(finding))
        result.update(
            changed=not self._task.check_mode,
            findings=found["findings"],
            report_json=str(paths["json"]),
            report_html=str(paths["html"]),
            junit_xml=str(report_dir / "junit.xml"),
        )
        if judged.stops:
            result.update(failed=True, msg=f"{verdict.message(judged.stops, unchanged=False)}\nReport: {paths['html']}")
        return result

    @staticmethod
    def write(report_dir: Path, report: dict[str, t.Any]) -> None:
        """All files of a report, so that none of an older one is left beside them."""
        try:
            report_dir.mkdir(parents=True, exist_ok=True)
            for name, render in FILES.items():
                (report_dir / name).write_text(render(report), encoding="utf-8", errors="replace")
        except OSError as error:
            raise AnsibleActionFail(
                f"Cannot write the report to {report_dir}: {error.strerror}; set gpu_fabric_report_dir"
            ) from error
