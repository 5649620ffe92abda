"""Show the plan of a merge replay as a row."""

from recovery.merge.log import MergePlan
from recovery.merge.replay import Base, ReplayPosition
from recovery.rows.merge import MergeInput, MergeOutput, MergePlanRow


def merge_plan_row(
    plan: MergePlan,
    base: Base,
    output_end: int,
    reached: ReplayPosition | None,
    transactional_id: str,
) -> MergePlanRow:
    """Return the row. base: the commit; reached: what an earlier replay from there committed."""
    return MergePlanRow.of(
        plan,
        entries=sum(i.entries for i in plan.inputs),
        inputs=[MergeInput.of(i) for i in plan.inputs],
        output=MergeOutput(
            topic=base.output[0],
            partition=base.output[1],
            start=base.output_offset,
            end=output_end,
        ),
        position=None if reached is None else reached.merge_offset,
        drop_left=None if reached is None else reached.drop_left,
        transactional_id=transactional_id,
    )
