# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E501 -- tables and lines as the real things have them
"""What the parts of a GPU server are: PCI identity, link capability, names. No host's values."""

from __future__ import annotations

from typing import Any

SPEEDS_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # PCIe generation: GT/s

BRIDGES: dict[str, dict[str, Any]] = {
    "intel_root_port": {"vendor": "8086", "device": "352a", "type": "root", "gen": 5, "width": 16, "driver": "pcieport",
                        "acs": True},
    "amd_root_port": {"vendor": "1022", "device": "1483", "type": "root", "gen": 4, "width": 16, "driver": "pcieport",
                      "acs": True},
    "pex890_up": {"vendor": "1000", "device": "c030", "type": "upstream", "gen": 5, "width": 16, "driver": "pcieport",
                  "acs": False},
    "pex890_down": {"vendor": "1000", "device": "c030", "type": "downstream", "gen": 5, "width": 16,
                    "driver": "pcieport", "acs": True},
    "pex88000_up": {"vendor": "1000", "device": "c010", "type": "upstream", "gen": 4, "width": 16,
                    "driver": "pcieport", "acs": False},
    "pex88000_down": {"vendor": "1000", "device": "c010", "type": "downstream", "gen": 4, "width": 16,
                      "driver": "pcieport", "acs": True},
}  # fmt: skip

NICS: dict[str, dict[str, Any]] = {
    "cx7_400": {
        "vendor": "15b3", "device": "1021", "subsystem": ("15b3", "0041"), "gen": 5, "width": 16, "mrrs": 4096,
        "type": "ConnectX7", "hca_type": "MT4129", "rate_gbps": 400, "psid": "MT_0000000838", "firmware": "28.43.2566",
        "part": "MCX75510AAS-NEAT", "vpi": True, "driver": "mlx5_core", "rom": "MCX75510AAS-NEA_Ax",
        "product": "NVIDIA ConnectX-7 VPI adapter card, 400Gb/s NDR IB and 400GbE, single-port OSFP, PCIe 5.0 x16",
    },
    "cx7_sw_mng": {
        "vendor": "15b3", "device": "1021", "subsystem": ("15b3", "0051"), "gen": 5, "width": 2, "mrrs": 512,
        "type": "ConnectX7", "hca_type": "MT4129", "rate_gbps": 400, "psid": "MT_0000001270", "firmware": "28.44.2524",
        "part": "692-9X760-00SE-S00", "vpi": False, "driver": "mlx5_core", "rom": "692-9X760-00SE-S0_Ax", "sw_mng": True,
        "product": "Nvidia ConnectX-7 mezz for NVLink switch management",
    },
    "cx6_200": {
        "vendor": "15b3", "device": "101b", "subsystem": ("15b3", "0028"), "gen": 4, "width": 16, "mrrs": 4096,
        "type": "ConnectX6", "hca_type": "MT4123", "rate_gbps": 200, "psid": "MT_0000000223", "firmware": "20.43.2566",
        "part": "MCX653105A-HDAT", "vpi": True, "driver": "mlx5_core", "rom": "MCX653105A-HDA_Ax",
        "product": "ConnectX-6 VPI adapter card, HDR IB (200Gb/s) and 200GbE, single-port QSFP56",
    },
    "cx6_200_dual": {
        "vendor": "15b3", "device": "101b", "subsystem": ("15b3", "0006"), "gen": 4, "width": 16, "mrrs": 4096,
        "type": "ConnectX6", "hca_type": "MT4123", "rate_gbps": 200, "psid": "MT_0000000225", "firmware": "20.43.2566",
        "part": "MCX653106A-HDAT", "vpi": True, "driver": "mlx5_core", "rom": "MCX653106A-HDA_Ax", "ports": 2,
        "product": "ConnectX-6 VPI adapter card, HDR IB (200Gb/s) and 200GbE, dual-port QSFP56",
    },
    "cx6dx_100": {
        "vendor": "15b3", "device": "101d", "subsystem": ("15b3", "0016"), "gen": 4, "width": 16, "mrrs": 512,
        "type": "ConnectX6DX", "hca_type": "MT4125", "rate_gbps": 100, "psid": "MT_0000000359", "firmware": "22.43.2566",
        "part": "MCX623106AN-CDAT", "vpi": False, "driver": "mlx5_core", "rom": "MCX623106AN-CDA_Ax", "ports": 2,
        "product": "ConnectX-6 Dx EN adapter card, 100GbE, Dual-port QSFP56, PCIe 4.0 x16",
    },
    "cx5_100": {
        "vendor": "15b3", "device": "1017", "subsystem": ("15b3", "0020"), "gen": 3, "width": 16, "mrrs": 512,
        "type": "ConnectX5", "hca_type": "MT4119", "rate_gbps": 100, "psid": "MT_0000000010", "firmware": "16.35.4030",
        "part": "MCX515A-CCAT", "vpi": False, "driver": "mlx5_core", "rom": "MCX515A-CCA_Ax",
        "product": "CX515A - ConnectX-5 QSFP28",
    },
    "cx7_vf": {
        "vendor": "15b3", "device": "101e", "subsystem": ("15b3", "0041"), "gen": 5, "width": 0, "mrrs": 128,
        "type": "ConnectX7", "hca_type": "MT4126", "rate_gbps": 400, "psid": "MT_0000000838", "firmware": "28.39.1002",
        "part": "", "vpi": False, "driver": "mlx5_core", "rom": "", "vf": True, "product": "",
    },
    "x550": {
        "vendor": "8086", "device": "1563", "subsystem": ("15d9", "1b75"), "gen": 3, "width": 4, "mrrs": 512,
        "type": "", "rate_gbps": 10, "firmware": "0x800012b7, 1.2028.0", "driver": "ixgbe", "ports": 2, "rdma": False,
        "part": "", "product": "",
    },
    "virtio": {
        "vendor": "1af4", "device": "1041", "subsystem": ("1af4", "1100"), "gen": 0, "width": 0, "mrrs": 0,
        "type": "", "rate_gbps": 0, "firmware": "", "driver": "virtio-pci", "rdma": False, "part": "", "product": "",
    },
}  # fmt: skip

GPUS: dict[str, dict[str, Any]] = {
    "h100_sxm": {"device": "2330", "subsystem": ("10de", "16c1"), "gen": 5, "width": 16,
                 "name": "NVIDIA H100 80GB HBM3",
                 "architecture": "Hopper", "memory_mib": 81559, "reserved_mib": 545, "vbios": "96.00.99.00.01",
                 "part": "2330-885-A1", "board_part": "692-2G520-0200-000", "power_w": 700, "nvlinks": 18,
                 "nvlink_gbs": "26.562", "fabric": True, "brand": "NVIDIA", "bar1_mib": 131072,
                 "sm_mhz": 1980, "mem_mhz": 2619},
    "a100_sxm": {"device": "20b2", "subsystem": ("10de", "1463"), "gen": 4, "width": 16, "name": "NVIDIA A100-SXM4-80GB",
                 "architecture": "Ampere", "memory_mib": 81920, "reserved_mib": 631, "vbios": "92.00.45.00.03",
                 "part": "20B2-885-A1", "board_part": "692-2G506-0210-002", "power_w": 400, "nvlinks": 12,
                 "nvlink_gbs": "25", "fabric": False, "brand": "NVIDIA", "bar1_mib": 131072, "sm_mhz": 1410,
                 "mem_mhz": 1593},
    "b200_sxm": {"device": "2901", "subsystem": ("10de", "1999"), "gen": 5, "width": 16, "name": "NVIDIA B200",
                 "architecture": "Blackwell", "memory_mib": 183359, "reserved_mib": 728, "vbios": "97.00.82.00.2C",
                 "part": "2901-886-A1", "board_part": "692-2G525-0220-002", "power_w": 1000, "nvlinks": 18,
                 "nvlink_gbs": "53.125", "fabric": True, "brand": "NVIDIA", "bar1_mib": 262144, "sm_mhz": 1965,
                 "mem_mhz": 3996},
    "l40s": {"device": "26b9", "subsystem": ("10de", "1851"), "gen": 4, "width": 16, "name": "NVIDIA L40S",
             "architecture": "Ada Lovelace", "memory_mib": 46068, "reserved_mib": 473, "vbios": "95.02.66.00.02",
             "part": "26B9-896-A1", "board_part": "900-2G133-0080-000", "power_w": 350, "nvlinks": 0,
             "nvlink_gbs": "", "fabric": False, "brand": "NVIDIA", "bar1_mib": 65536, "sm_mhz": 2520, "mem_mhz": 9001},
}  # fmt: skip

NVSWITCHES = {
    "h100": {"device": "22a3", "subsystem": ("10de", "1796"), "gen": 2, "width": 2},
    "a100": {"device": "1af1", "subsystem": ("10de", "1384"), "gen": 2, "width": 4},
}

# Rate of one port in Gb/s: what the kernel writes into ports/N/rate.
RATE_TEXT = {
    10: "10 Gb/sec (4X SDR)", 25: "25 Gb/sec (1X EDR)", 40: "40 Gb/sec (4X QDR)", 50: "50 Gb/sec (2X EDR)",
    56: "56 Gb/sec (4X FDR)", 100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)",
    800: "800 Gb/sec (4X XDR)",
}  # fmt: skip
