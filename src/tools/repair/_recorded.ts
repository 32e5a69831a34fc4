import { isJsonList, type Json } from '../../schema/index.ts'

const maxTextChars = 500
const maxValues = 50
const maxDepth = 8

/**
 * A value as it is kept in the record of a repair: itself if it is small, else a short description. The message with the call has
 * the whole value.
 */
export function recorded(value: Json): Json {
  if (typeof value === 'string') return clipped(value)
  if (typeof value !== 'object' || value === null) return value
  if (new SizeCheck().isSmall(value, maxDepth)) return value
  return isJsonList(value) ? `[… ${value.length} items]` : `{… ${Object.keys(value).length} parameters}`
}

export function clipped(text: string): string {
  return text.length > maxTextChars ? `${text.slice(0, maxTextChars)}… (${text.length} characters)` : text
}

/** Stops at the first sign of size, so that it costs the same for values of any size. */
class SizeCheck {
  #values = 0
  #chars = 0

  isSmall(value: Json | undefined, depth: number): boolean {
    this.#values += 1
    if (typeof value === 'string') this.#chars += value.length
    if (depth === 0 || this.#values > maxValues || this.#chars > maxTextChars) return false
    if (typeof value !== 'object' || value === null) return true
    if (isJsonList(value)) return value.every((item) => this.isSmall(item, depth - 1))
    for (const key in value) {
      this.#chars += key.length
      if (!this.isSmall(value[key], depth - 1)) return false
    }
    return true
  }
}
