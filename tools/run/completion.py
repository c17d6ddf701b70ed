"""`slipstream completion`: the script with which a shell completes commands, options, stores, topics and groups."""

from __future__ import annotations

import click

from tools.common.exit_codes import ExitCode

VARIABLE = "_SLIPSTREAM_COMPLETE"  # set by that script when it asks what may be typed: tools/cli.py
SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog='bash: add eval "$(slipstream completion bash)" to ~/.bashrc. zsh: add the same with zsh to ~/.zshrc,'
    " after compinit. fish: slipstream completion fish > ~/.config/fish/completions/slipstream.fish"
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes commands in your shell.

    The script completes commands, options, paths, and the topics and groups of a store.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "slipstream", VARIABLE)
    click.echo(made.source_template % made.source_vars())
    return ExitCode.WELL
