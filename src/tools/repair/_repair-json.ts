import { jsonrepair } from 'jsonrepair'
import { withinTime } from '../_within-time.ts'

/** A text that can be repaired takes milliseconds, even a long one. The rest is for a machine that is busy. */
const timeoutMs = 500

/**
 * Repairs text that is nearly JSON, with the library `jsonrepair`; undefined if that fails. On odd quotes the library starts over
 * again and again: its time grows with the cube of the text, and the thread it runs on serves all rollouts. So it is stopped. Its
 * streaming form is linear, but never ends where a list stands in the place of a key (`{"a": 1, [2]}`).
 */
export function repairJson(text: string): string | undefined {
  return withinTime(timeoutMs, () => {
    try {
      return jsonrepair(text)
    } catch {
      return undefined
    }
  })
}
