"""`clockhands explain`: what a finding or a fault means, its cause and its fix; or what a symptom may come from."""

import click

from clockhands.auditing import CODES
from clockhands.cli.group import guess, say
from clockhands.cli.output import json_option, print_json
from clockhands.recognition.faults import FAULTS, fault_in_words
from clockhands.recognition.symptoms import SYMPTOMS, Symptom, found_by

EXAMPLES = """\b
Examples:
  clockhands explain default-base
  clockhands explain gibberish past 4k tokens
  clockhands explain fine at batch 1, wrong with padding
  clockhands explain
"""

MOST_SYMPTOMS, MOST_CODES = 3, 8  # the best of a search


def _searched(words: tuple[str, ...]) -> tuple[list[Symptom], list[str]]:
    """The symptoms that have the words best, with their codes; without such symptoms, the codes that do.

    Raises:
        BadParameter: None has any.
    """
    symptoms = found_by(words, {each: each.searched for each in SYMPTOMS})[:MOST_SYMPTOMS]
    codes = [code for each in symptoms for code in each.codes]
    if not symptoms:
        texts = {code: f"{code} {rule.title}" for code, rule in CODES.items()}
        texts |= {code: f"{texts.get(code, code)} {fault_in_words(fault)}" for code, fault in FAULTS.items()}
        codes = found_by(words, texts)[:MOST_CODES]
    code = " ".join(words)
    if not codes or ("-" in code and len(words) == 1):
        raise click.BadParameter(
            f"{code!r} is not the code of a finding or a fault{', and fits no symptom' if len(words) > 1 else ''}."
            f"{guess(code, [*CODES, *FAULTS])} "
            "`clockhands explain` without a code lists all.",
            click.get_current_context(),
            param_hint="'[WORDS]...'",
        )
    return symptoms, codes


@click.command("explain", epilog=EXAMPLES)
@click.argument("words", nargs=-1)
@json_option
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Say what a finding of `clockhands audit` or a fault of `clockhands check` means, and how to fix it.

    WORDS is the code of a finding, such as default-base, or of a fault, such as positions-rounded; or what you see, in
    your own words: then the symptoms that fit best are shown, with the commands that tell what it is; where none fits,
    the codes that do. Without WORDS, all codes are listed: findings with their severity, faults with their symptoms.
    """
    symptoms, codes = list(SYMPTOMS), [*CODES, *FAULTS]
    code = words[0] if len(words) == 1 and words[0] in codes else None
    if code is not None:
        symptoms, codes = [], [code]
    elif words:
        symptoms, codes = _searched(words)
    # A code that is both is printed once: the text on the check follows the finding.
    findings, faults = ([each for each in known if each in codes] for known in (CODES, FAULTS))
    if as_json:
        print_json(
            {
                "symptoms": [each.to_dict() for each in symptoms],
                "findings": [CODES[each].to_dict() for each in findings],
                "faults": [FAULTS[each].to_dict() for each in faults],
            }
        )
        return 0
    # A program that asks for JSON does not pay for the drawing.
    from clockhands.show import explanation

    if words and symptoms:
        explanation.print_symptoms(symptoms)
        return 0
    if code is None:
        if findings:
            say("Findings of `clockhands audit`:", bold=True)
            explanation.print_codes({each: CODES[each] for each in findings})
        if faults:
            say("\nFaults of `clockhands check`:", bold=True)
            explanation.print_faults({each: FAULTS[each] for each in faults})
        return 0
    for each in findings:
        explanation.print_explanation(each, CODES[each])
    for each in faults:
        from clockhands.testing.kinds import experiments

        explanation.print_fault(FAULTS[each], experiments(FAULTS[each].about[0]), above=CODES.get(each))
    return 0
