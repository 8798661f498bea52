"""The command ``kernel``: check the settings of the run, then write the notebook for Kaggle's GPUs."""

from fastslow.kaggle.kernel import KernelConfig, make_kernel
from fastslow.workflow.run_config import RunConfig, make_plan


def write_kernel(config: KernelConfig) -> None:
    """Write the notebook and push it where there are credentials, once the run in it is one that can start.

    Kaggle's machine would notice a misspelt setting only minutes after the push.

    Raises:
        ConfigError: A setting of the notebook or of the run in it is wrong, or its preset has no submission.
        KaggleError: Kaggle refused the notebook or could not be reached.
    """
    target, *settings = config.command()
    make_plan(RunConfig.from_texts([*settings, "data=kaggle"], {"target": target})).steps("submission")
    make_kernel(config)
