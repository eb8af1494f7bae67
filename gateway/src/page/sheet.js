// A dialog that asks before it acts: a form, a refusal shown in place, and a second yes where needed.
//
// It is the browser's own modal dialog: Esc closes it, the focus stays inside, and goes back to where
// it came from.

import { el, mark, say } from "./dom.js";

/** Closes a dialog by a click beside it too. */
export function closesBeside(dialog) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

/**
 * Opens a form in the dialog. `submit(isSure)` gives a promise; what it returns is said to the reader
 * and closes the dialog, what it throws is shown. An error with the code `needs_confirmation` turns
 * the button into a second yes. `label()` names the deed, `lede` and `fields` are elements.
 */
export function openSheet(dialog, { title, lede, fields, label, submit, done }) {
  let isSure = false;
  let isBusy = false;
  const error = el("p", { class: "error", role: "alert", hidden: true });
  const yes = el("button", { type: "submit", class: "primary" });
  const no = el("button", { type: "button", click: () => dialog.close() }, "Cancel");
  const name = () => {
    say(yes, isSure ? `Yes, ${label().slice(0, 1).toLowerCase()}${label().slice(1)}` : label());
    mark(yes, "data-sure", isSure ? "yes" : null);
  };
  const refuse = (problem) => {
    isSure = problem.code === "needs_confirmation";
    say(error, problem.message);
    error.hidden = false;
    name();
    if (isSure) yes.focus();
  };
  const send = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    mark(yes, "aria-busy", "true");
    try {
      const said = await submit(isSure);
      dialog.close();
      done(said);
    } catch (problem) {
      refuse(problem);
    }
    isBusy = false;
    mark(yes, "aria-busy", null);
  };
  const change = () => {
    isSure = false;
    error.hidden = true;
    name();
  };
  const form = el("form", { method: "dialog", submit: send, input: change },
    el("h2", { id: `${dialog.id}-title` }, title), lede, ...fields, error,
    el("div", { class: "sheet-actions" }, no, yes));
  dialog.replaceChildren(form);
  name();
  dialog.showModal();
  form.querySelector("[data-first]")?.focus();
}

/** A group of radio buttons. `choices`: value, label, and what it means. */
export function choices(name, legend, given, chosen, first = false) {
  const rows = given.map(([value, label, meaning]) => {
    const isChosen = value === chosen;
    return el("label", { class: "choice" },
      el("input", { type: "radio", name, value, checked: isChosen, "data-first": first && isChosen }),
      el("span", {}, el("b", {}, label), meaning ? el("span", { class: "faint" }, meaning) : null));
  });
  return el("fieldset", { class: `choices choices-${name}` }, el("legend", {}, legend), ...rows);
}

/** What is chosen in a group. */
export function chosen(dialog, name) {
  return dialog.querySelector(`input[name="${name}"]:checked`)?.value ?? "";
}

/** What the API calls a confirmation, asked for by the page itself. */
export function unsure(message) {
  return Object.assign(new Error(message), { code: "needs_confirmation" });
}
