# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a run: one HTML page, one JSON file, one JUnit file, all from the same data."""

from __future__ import annotations

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.report.build import build
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.report.junit import render_junit
from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils.report.page import render_html

__all__ = ("build", "render_html", "render_junit")
