const quote = 0x22
const backslash = 0x5c
const openBrace = 0x7b
const closeBrace = 0x7d

/**
 * The `{…}` in a text that stand side by side, in order; brackets inside strings do not count. One pass over the text: an object
 * that does not close ends the search, since everything after it would stand inside it.
 */
export function* balancedObjects(text: string): Generator<string, void, undefined> {
  let start = -1
  let depth = 0
  let isInString = false
  for (let index = text.indexOf('{'); index >= 0 && index < text.length; index += 1) {
    const code = text.charCodeAt(index)
    if (isInString) {
      if (code === backslash) index += 1
      else if (code === quote) isInString = false
    } else if (code === quote) {
      // A quote between objects is prose.
      isInString = depth > 0
    } else if (code === openBrace) {
      if (depth === 0) start = index
      depth += 1
    } else if (code === closeBrace && depth > 0) {
      depth -= 1
      if (depth === 0) yield text.slice(start, index + 1)
    }
  }
}

/** How deep JSON text is nested. The text must be JSON: nothing else is checked. */
export function nestingOf(json: string): number {
  let depth = 0
  let deepest = 0
  let isInString = false
  for (let index = 0; index < json.length; index += 1) {
    const character = json[index]
    if (isInString) {
      if (character === '\\') index += 1
      else if (character === '"') isInString = false
    } else if (character === '"') isInString = true
    else if (character === '{' || character === '[') deepest = Math.max(deepest, (depth += 1))
    else if (character === '}' || character === ']') depth -= 1
  }
  return deepest
}
