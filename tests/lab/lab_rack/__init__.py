# (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's rack: what stands around the nodes. Cables and switches, power, the provisioning seed, the package server.

Runs on the controller with the standard library only; ``playbooks/lab.yml`` is its one user.
"""
