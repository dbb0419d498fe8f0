"""Write docs/symptoms.md: what people see when positions are wrong, and the command that tells what it is.

Run it after symptoms.toml has changed; a test holds the page to it.
"""

from pathlib import Path

from clockhands.auditing import CODES
from clockhands.recognition.symptoms import SYMPTOMS, Symptom
from incidents_document import thread

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "symptoms.md"


def document() -> str:
    """The whole page."""
    return f"""# Symptoms

What people see when positions are wrong, what it often was, and what to run. Words in capitals are your own: MODEL is a
folder, a file or `org/name` (in `--like` also a [preset](first-steps.md#on-the-command-line)), FILE.py:FUNCTION code
that you have, RUNTIME a [runtime](runtimes.md) such as `vllm`. On the command line `clockhands explain` finds these
by other words too: `clockhands explain fine at batch 1, wrong with padding`. The reports are public, and in
[incidents](incidents.md) each is rebuilt and named by one of the codes.

A model can also be wrong for reasons that are no positions. Where every command says that positions are correct, look
elsewhere: at the template of the chat, the tokenizer, the quantisation.

{chr(10).join(map(section, SYMPTOMS))}"""


def section(symptom: Symptom) -> str:
    """One symptom."""
    commands = "\n".join(f"$ {command}" for command in symptom.commands)
    links = ", ".join(
        f"[`{code}`](findings.md#{code})" if code in CODES else f"[`{code}`](checking.md)" for code in symptom.codes
    )
    reported = ", ".join(map(thread, symptom.reported))
    return f"""## {symptom.sees[0].upper()}{symptom.sees[1:]}

Often {symptom.often}.

```console (not run: the words in capitals)
{commands}
```

Codes: {links}.
{f"Reported: {reported}.{chr(10)}" if reported else ""}"""


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
