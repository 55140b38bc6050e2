# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Registers and product data: the bytes of a card."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sysfs_trees.registers import config_space, vital_product_data

from ansible_collections.railyard.gpu_fabric.plugins.module_utils._facts import pci_config, vpd


class TestConfigSpace:
    @pytest.mark.parametrize(
        ("control", "names"),
        [
            (0x0000, []),
            (0x0001, ["SrcValid"]),
            (0x001D, ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]),
            (0x007F, list(pci_config.ACS_BITS)),
        ],
    )
    def test_acs(self, control: int, names: list[str]) -> None:
        found = pci_config.decode(config_space("1000", "c030", "060400", acs=control))
        assert found["acs"] == {"capable": True, "control": names}

    def test_no_acs_capability(self) -> None:
        assert pci_config.decode(config_space("1000", "c030", "060400"))["acs"] == {"capable": False, "control": []}

    @pytest.mark.parametrize(
        ("request_size", "payload"), [(128, 4096), (256, 128), (512, 256), (1024, 512), (4096, 2048)]
    )
    def test_request_and_payload_sizes(self, request_size: int, payload: int) -> None:
        data = config_space("15b3", "1021", "020700", max_read_request=request_size, payload=payload)
        found = pci_config.decode(data)
        assert (found["max_read_request_bytes"], found["max_payload_bytes"]) == (request_size, payload)

    def test_a_reader_without_privilege_sees_the_header_and_is_told_nothing(self) -> None:
        assert pci_config.decode(config_space("1000", "c030", "060400", acs=0x1D)[:64]) == {}

    def test_without_extended_space_acs_is_unknown(self) -> None:
        assert "acs" not in pci_config.decode(config_space("1000", "c030", "060400", acs=0x1D)[:256])

    def test_a_function_that_fell_off_the_bus(self) -> None:
        assert pci_config.decode(b"\xff" * 4096) == {}

    def test_chains_that_lead_in_a_circle_end(self) -> None:
        data = bytearray(config_space("1000", "c030", "060400", acs=0))
        data[0x41] = 0x40
        data[0x14B] = 0x14  # the capability after ACS is ACS
        data[0x14A] = 0x81
        pci_config.decode(bytes(data))

    @settings(max_examples=100, deadline=None)
    @given(st.binary(max_size=600))
    def test_any_bytes(self, data: bytes) -> None:
        found = pci_config.decode(data)
        assert found.get("max_read_request_bytes", 128) in (128, 256, 512, 1024, 2048, 4096)


class TestVitalProductData:
    def test_what_the_maker_wrote(self) -> None:
        keywords = {"PN": "MCX75310AAS-NEAT", "SN": "MT2500000010", "V0": "PCIeGen5"}
        assert vpd.decode(vital_product_data("ConnectX-7 adapter", keywords)) == {
            "product_name": "ConnectX-7 adapter",
            "part_number": "MCX75310AAS-NEAT",
            "serial": "MT2500000010",
            "keywords": keywords,
            "sw_mng": False,
        }

    @pytest.mark.parametrize("keyword", ["VB", "V1", "YA"])
    def test_a_switch_manager_by_any_keyword(self, keyword: str) -> None:
        assert vpd.decode(vital_product_data("Bridge", {"PN": "x", keyword: "SW_MNG"}))["sw_mng"] is True

    def test_a_switch_manager_by_its_name(self) -> None:
        assert vpd.decode(vital_product_data("SW_MNG bridge", {}))["sw_mng"] is True

    def test_nothing_readable(self) -> None:
        assert vpd.decode(b"") == {}
        assert vpd.decode(b"\xff" * 256) == {}

    @settings(max_examples=60, deadline=None)
    @given(st.integers(min_value=0, max_value=200))
    def test_a_cut_never_gives_half_a_value(self, length: int) -> None:
        whole = vital_product_data("ConnectX-7 adapter", {"PN": "MCX75310AAS-NEAT", "SN": "MT2500000010"})
        found = vpd.decode(whole[:length])
        full = vpd.decode(whole)
        for key in ("product_name", "part_number", "serial"):
            assert found.get(key, full[key]) == full[key]

    @settings(max_examples=100, deadline=None)
    @given(st.binary(max_size=300))
    def test_any_bytes(self, data: bytes) -> None:
        vpd.decode(data)
