# SPDX-License-Identifier: Apache-2.0
import pytest

from hspec_trt.errors import BuildError, CheckpointError, DrafterError, FaultGroup, Faults, HspecError


def test_message_has_code_found_needed_where_and_fix() -> None:
    error = CheckpointError("C003", "the file has 5 bytes", needed="9", where="a.safetensors", fix="Download it again")
    assert str(error) == "error[C003]: the file has 5 bytes; needed: 9 (a.safetensors). Download it again"
    assert error.to_dict()["code"] == "C003"


@pytest.mark.parametrize("code", ["D001", "C1", "C01x", "", "c001"])
def test_a_code_of_another_family_or_form_is_our_mistake(code: str) -> None:
    with pytest.raises(ValueError, match="codes look like C001"):
        CheckpointError(code, "x")


def test_faults_are_reported_together_and_flat() -> None:
    faults = Faults()
    with faults.collect():
        raise CheckpointError("C001", "one")
    with faults.collect():
        raise FaultGroup([DrafterError("D101", "two"), BuildError("B001", "three")])
    with pytest.raises(HspecError) as caught:
        faults.raise_any()
    assert [fault.code for fault in caught.value.faults] == ["C001", "D101", "B001"]
    assert str(caught.value).splitlines() == ["error[C001]: one", "error[D101]: two", "error[B001]: three"]


def test_one_fault_is_raised_as_itself_and_none_is_nothing() -> None:
    Faults().raise_any()
    faults = Faults()
    faults.add(DrafterError("D101", "only"))
    with pytest.raises(DrafterError, match="only"):
        faults.raise_any()


def test_other_exceptions_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), Faults().collect():
        raise ZeroDivisionError
