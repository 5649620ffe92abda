"""The rules of `doctor`, in the order in which their findings are shown."""

from recovery.doctor.durability_rules import verification_off
from recovery.doctor.findings import DoctorRule
from recovery.doctor.setting_names import VERIFICATION
from recovery.inspect.rights import CLUSTER_CONFIGS

RULES: tuple[DoctorRule, ...] = (
    DoctorRule(
        "verification-off",
        (CLUSTER_CONFIGS,),
        ("KIP-890", VERIFICATION),
        verification_off,
    ),
)
