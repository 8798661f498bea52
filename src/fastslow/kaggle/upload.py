"""Upload a checked submission once, and record what Kaggle answers."""

from pathlib import Path

from fastslow.competition.submission_csv import check_submission
from fastslow.core.artifacts import commit
from fastslow.core.files import writer_lock
from fastslow.evaluation.submission_record import SubmissionResult, read_submission_record, update_record
from fastslow.kaggle.client import find_submission, submit, wait_for_score
from fastslow.kaggle.provenance import check_release


def upload(csv: Path, data_root: Path, unproven_order: bool = False) -> None:
    """Check a submission once more, send it to Kaggle and wait for its score.

    A file that Kaggle already took is not sent again, even where a kill left only the record of the attempt:
    its score is asked for.

    Args:
        csv: The submission.
        data_root: The data that it was made from.
        unproven_order: Whether data are accepted whose row order is not known to be the scored one.

    Raises:
        DataError: The CSV is not as it must be, not the one its record was written for, or made from data of
            a row order that Kaggle does not score.
        SettingsError: The row order is unproven and was not accepted.
        KaggleError: Nothing was uploaded, or there is no score yet; the message names the cause and the
            command to type.
    """
    with writer_lock(csv.parent):  # a second run waits, and finds it uploaded
        _upload(csv, data_root, unproven_order)


def _upload(csv: Path, data_root: Path, unproven_order: bool) -> None:
    check_submission(csv, data_root)
    read_submission_record(csv, "valid_mean")
    record = update_record(csv)
    check_release(csv, record, data_root, unproven_order)
    before = record.get("upload") or record.get("attempt")
    result = before and SubmissionResult(**before)
    if "upload" in record or (result and find_submission(result)):
        print(f"{csv.name}: uploaded before; asking for its score")
    else:
        message = f"fastslow {record['name']} {commit()}, valid mean {record['valid_mean']:.4f}"
        result = submit(csv, message, begin=lambda begun: update_record(csv, attempt=begun.model_dump()))
        update_record(csv, upload=result.model_dump())
        print(f"{csv.name}: uploaded; waiting for its score")
    score = wait_for_score(result)
    update_record(csv, kaggle={"public": score.public_score, "private": score.private_score})
    print(f"Kaggle: public {score.public_score}, private {score.private_score}")
