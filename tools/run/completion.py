"""`slipstream completion`: the script with which a shell completes commands, options, stores, topics and groups."""

from __future__ import annotations

import click

from tools.common.exit_codes import ExitCode

VARIABLE = "_SLIPSTREAM_COMPLETE"  # set by that script when it asks what may be typed: tools/cli.py
SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog='bash: eval "$(slipstream completion bash)" in ~/.bashrc. zsh: the same with zsh in ~/.zshrc,'
    " behind compinit. fish: slipstream completion fish > ~/.config/fish/completions/slipstream.fish"
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script with which SHELL completes commands, options, paths, and a named store's topics and groups."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(context.find_root().command, {}, "slipstream", VARIABLE)
    click.echo(made.source_template % made.source_vars())
    return ExitCode.WELL
