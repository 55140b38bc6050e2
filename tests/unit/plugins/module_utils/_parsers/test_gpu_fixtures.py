# Copyright: (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mutation of the project's own recordings, and any text whatsoever, against each parser of host outputs."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import check_all, check_cuts, check_line_ends, check_shape, check_spoiled, decode, fixture_files

PARSERS = "ansible_collections.railyard.gpu_fabric.plugins.module_utils._parsers."
MODULES = (
    "nvidia_smi",
    "nvidia_smi_q",
    "nvidia_smi_xml",
    "nvidia_smi_csv",
    "nvidia_smi_list",
    "nvidia_smi_topo",
    "nvidia_smi_nvlink",
    "lspci",
    "dkms_status",
    "dmesg",
    "fabricmanager_log",
    "nccl_tests",
    "nccl_info",
    "nccl_conf",
    "perftest",
    "iperf3",
    "dpkg_list",
    "rpm_list",
    "apt_output",
    "modinfo",
    "sysctl_output",
    "lsmod",
    "ip_output",
    "systemd_show",
    "nft_ruleset",
)
# nccl.conf is a file and no output: NCCL reads a last line without a newline, and carriage returns are faults in it.
RECORDINGS = [(module, path) for module in MODULES if module != "nccl_conf" for path in fixture_files(module)]
TEXTS = {module: [decode(path.read_bytes()) for path in fixture_files(module)] for module in MODULES}
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def parser(module):
    return importlib.import_module(PARSERS + module).parse


@pytest.mark.parametrize("module", MODULES)
def test_each_parser_has_a_recording_that_it_reads(module):
    assert TEXTS[module], f"fixtures/{module} is empty"
    for text in TEXTS[module]:
        check_shape(parser(module)(text))


@pytest.mark.parametrize(("module", "path"), RECORDINGS, ids=lambda cell: getattr(cell, "name", cell))
def test_mutations(module, path):
    raw = path.read_bytes()
    if path.suffix in (".json", ".xml"):
        # One line or one document: what stands in front of it is none of its business.
        check_cuts(parser(module), raw)
        check_line_ends(parser(module), raw)
        check_spoiled(parser(module), raw)
    else:
        check_all(parser(module), raw)


@pytest.mark.parametrize(("module", "path"), RECORDINGS, ids=lambda cell: getattr(cell, "name", cell))
def test_a_parallel_shell_in_front(module, path):
    """pdsh and clush put the host's name before each line."""
    text = decode(path.read_bytes())
    if path.suffix in (".json", ".xml"):
        pytest.skip("a document is copied from one host, not collected line by line")
    lines = [f"node-07: {line}" if line else line for line in text.split("\n")]
    plain, prefixed = parser(module)(text).value, parser(module)("\n".join(lines)).value
    if module in ("nccl_info", "fabricmanager_log"):
        # Logs name their host themselves; what stands in front of that is passed over.
        assert prefixed.get("warns", prefixed.get("mismatch", {}).get("driver_version")) == plain.get(
            "warns", plain.get("mismatch", {}).get("driver_version")
        )
    else:
        assert prefixed == plain


@st.composite
def shuffled_lines(draw, texts):
    """Lines of real outputs in any order, some cut or with strange characters in them."""
    lines = [line for text in texts for line in text.split("\n")]
    picked = draw(st.lists(st.sampled_from(lines), max_size=30))
    spoiled = []
    for line in picked:
        if draw(st.integers(0, 5)) == 0 and line:
            at = draw(st.integers(0, len(line) - 1))
            line = line[:at] + draw(st.text(max_size=3)) + line[at + draw(st.integers(0, 2)) :]
        spoiled.append(line)
    return draw(st.sampled_from(["\n", "\r\n"])).join(spoiled) + draw(st.sampled_from(["", "\n"]))


@pytest.mark.parametrize("module", [*MODULES, "nvidia_smi_any"])
def test_any_text(module):
    parse = parser(module)

    @QUICK
    @given(
        st.one_of(
            st.text(max_size=200), st.text(alphabet="|+-: =#[]{}()<>/.,\t\n0123456789abcdefGPUNICx", max_size=300)
        )
    )
    def check(text):
        check_shape(parse(text))

    check()


@pytest.mark.parametrize("module", [*MODULES, "nvidia_smi_any"])
def test_shuffled_lines(module):
    parse = parser(module)
    texts = TEXTS.get(module) or [text for name in MODULES if name.startswith("nvidia_smi") for text in TEXTS[name]]

    @QUICK
    @given(shuffled_lines(texts))
    def check(text):
        check_shape(parse(text))

    check()


@pytest.mark.parametrize("module", MODULES)
def test_bytes_and_surrogates_are_damage_and_no_text(module):
    """A reader that keeps undecodable bytes as surrogates must not get them back as values."""
    text = TEXTS[module][0]
    for spot in range(3, len(text), max(7, len(text) // 40)):
        if text[spot] != "\n":
            spoiled = text[:spot] + "\udcff" + text[spot + 1 :]
            assert "\udcff" not in repr(parser(module)(spoiled).value), spoiled[max(0, spot - 20) : spot + 20]
