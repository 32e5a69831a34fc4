/** A path into a value as people write it: `messages[0].content`. Places of a list may be given as text. */
export function pathText(path: readonly PropertyKey[]): string {
  let text = ''
  for (const step of path) {
    const name = String(step)
    if (/^\d+$/.test(name)) text += `[${name}]`
    else text += text === '' ? name : `.${name}`
  }
  return text
}
