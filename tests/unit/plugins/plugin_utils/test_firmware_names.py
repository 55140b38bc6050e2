# Copyright (c) 2026 Railyard maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of firmware parameters: what is refused before a card is asked, and what is left to the card."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.railyard.gpu_fabric.plugins.plugin_utils import firmware_names
from railyard_lab import nvconfig

LAB = {**nvconfig.COMMON, **nvconfig.ADVANCED, **nvconfig.PER_PORT, **nvconfig.READ_ONLY}


@pytest.mark.parametrize("name", sorted({*firmware_names.KNOWN, *LAB}))
@pytest.mark.parametrize("form", ["{}", "{}_P1", "{}[0]", "{}_P2[0..3]"])
def test_what_a_card_has_is_no_slip(name: str, form: str) -> None:
    assert firmware_names.fault(form.format(name)) == ""


@given(st.data())
def test_one_letter_too_many_or_too_few_is_told_with_the_name_that_was_meant(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(firmware_names.KNOWN)))
    place = data.draw(st.integers(1, len(name) - 1))
    for wrong in (name[:place] + "Q" + name[place:], name[:place] + "Q" + name[place + 1 :]):
        assert wrong in firmware_names.KNOWN or "the nearest is" in firmware_names.fault(wrong)


@given(st.one_of(st.text(max_size=40), st.integers(), st.none()))
def test_odd_names_are_no_traceback(name: object) -> None:
    assert isinstance(firmware_names.fault(name), str)


def test_another_number_or_another_kind_of_function_is_another_parameter() -> None:
    for name in ("LRO_LOG_TIMEOUT4", "VF_BAR2_SIZE", "LLDP_NB_TX_MODE", "MEMIC_SOMETHING_ELSE"):
        assert firmware_names.fault(name) == ""
