/** Colours of the style for a canvas, which knows neither CSS variables nor `light-dark()`. */

/** Return the colour that a CSS variable has for an element now. */
export function colourOf(element: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
