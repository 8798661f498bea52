"""Upload a checked submission once, and record what Kaggle answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastslow.competition.submission_checks import check_submission
from fastslow.core.artifacts import commit
from fastslow.core.files import writer_lock
from fastslow.evaluation.submission_record import SubmissionResult, update_record
from fastslow.kaggle.api_process import PAGE, KaggleError
from fastslow.kaggle.client import ERROR, find_settled, submit, wait_for_score
from fastslow.kaggle.provenance import check_release


def upload(csv: Path, data_root: Path | None, unproven_order: bool = False) -> None:
    """Check a submission once more, send it to Kaggle and wait for its score.

    A file that Kaggle lists is not sent again, even where a kill left only the record of the attempt: its
    score is asked for. One that Kaggle does not list is sent again.

    Args:
        csv: The submission.
        data_root: The data that it was made from; None for a CSV that was made and checked on Kaggle itself.
        unproven_order: Whether data are accepted whose row order is not known to be the scored one.

    Raises:
        DataError: The CSV is not as it must be, not the one its record was written for, or made from data of
            a row order that Kaggle does not score.
        SettingsError: The row order is unproven and was not accepted.
        KaggleError: Nothing was uploaded, there is no score yet, or Kaggle cannot score the file; the message
            names the cause and what to do.
    """
    with writer_lock(csv.parent):  # a second run waits, and finds it uploaded
        _upload(csv, data_root, unproven_order)


def _upload(csv: Path, data_root: Path | None, unproven_order: bool) -> None:
    if data_root:
        check_submission(csv, data_root)
    record = update_record(csv)
    if data_root:
        check_release(csv, record, data_root, unproven_order)
    result = _uploaded_before(csv, record)
    if result is None:
        message = f"fastslow {record['name']} {commit()}"
        if "valid_mean" in record:  # a blend has none
            message += f", valid mean {record['valid_mean']:.4f}"
        print(f"sending {csv.name}; a lost connection is tried again for minutes", flush=True)
        result = submit(csv, message, begin=lambda begun: update_record(csv, attempt=begun.model_dump()))
        update_record(csv, upload=result.model_dump())
        print(f"{csv.name}: uploaded; waiting for its score")
    ours = wait_for_score(result)
    if ours.status == ERROR:
        update_record(csv, upload=None, attempt=None)
        problem = f"Kaggle could not score {csv.name} ({ours.error or 'no reason given'})"
        remedy = f"See {PAGE}/submissions for the reason. Type the same command again to send the file anew"
        raise KaggleError(problem, remedy)
    update_record(csv, kaggle={"public": ours.public_score, "private": ours.private_score})
    private = "hidden" if ours.private_score is None else ours.private_score
    print(f"Kaggle: public {ours.public_score}, private {private}")


def _uploaded_before(csv: Path, record: Mapping[str, Any]) -> SubmissionResult | None:
    """Return the upload that a record holds if Kaggle has it; None where the file must be sent."""
    accepted = record.get("upload")
    before = accepted or record.get("attempt")
    if not before:
        return None
    result = SubmissionResult(**before)
    if find_settled(result):
        print(f"{csv.name}: uploaded before; asking for its score")
        return result
    if accepted:
        print(
            f"{csv.name}: Kaggle accepted it but does not list it, as over the daily limit; sending it again"
        )
    return None
