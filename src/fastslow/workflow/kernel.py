"""The command ``kernel``: check the settings of the run, then write the notebook for Kaggle's GPUs."""

from fastslow.kaggle.kernel import KernelSettings, make_kernel
from fastslow.workflow.run_settings import RunSettings, make_plan


def write_kernel(settings: KernelSettings) -> None:
    """Write the notebook and push it where there are credentials, once the run in it is one that can start.

    Kaggle's machine would notice a misspelt setting only minutes after the push.

    Raises:
        SettingsError: A setting of the notebook or of its run is wrong, or its preset has no submission.
        KaggleError: Kaggle refused the notebook or could not be reached.
    """
    target, *words = settings.command()
    make_plan(RunSettings.from_texts([*words, "data=kaggle"], {"target": target})).steps("submission")
    make_kernel(settings)
