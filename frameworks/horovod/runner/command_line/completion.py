"""What a shell needs to complete the options of horovodrun: ``eval "$(horovodrun --completion bash)"``."""

import shlex

from .option import Option
from .options import OPTIONS

SHELLS = ("bash", "zsh", "fish")
_BASH = """\
_horovodrun() {{
    if [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]]; then
        COMPREPLY=($(compgen -W {flags} -- "${{COMP_WORDS[COMP_CWORD]}}"))
    else
        COMPREPLY=($(compgen -c -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
    fi
}}
complete -o default -F _horovodrun horovodrun"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str) -> str:
    """The text that a shell evaluates."""
    shown = [option for option in OPTIONS if option.help is not None]
    if shell == "fish":
        return "\n".join(map(_fish, shown))
    flags = " ".join(flag for option in shown for flag in option.long_flags)
    return (_ZSH if shell == "zsh" else "") + _BASH.format(flags=shlex.quote(flags))


def _fish(option: Option) -> str:
    name, takes = option.long_flags[0].lstrip("-"), " -r" if option.takes_value else ""
    return f"complete -c horovodrun -l {name} -d {shlex.quote(option.help or '')}{takes}"
