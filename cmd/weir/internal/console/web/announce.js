// What those who listen to the page are told beyond what they look for: few things, and not the numbers.

/** announce tells it. urgent interrupts. */
export function announce(text, { urgent = false } = {}) {
  document.getElementById(urgent ? "urgent" : "polite").textContent = text;
}
