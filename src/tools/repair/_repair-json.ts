import { jsonrepair } from 'jsonrepair'
import { withinTime } from '../_within-time.ts'

/** What can be repaired takes milliseconds, also where it is long. The rest is for a machine that is busy. */
const timeoutMs = 500

/**
 * JSON text made of text that is nearly JSON, by the library `jsonrepair`; undefined where even that finds none. On odd quotes
 * it starts over again and again: its time grows with the cube of the text, and the thread it runs on serves all rollouts. So
 * it is stopped. Its streaming form, which is linear, never ends where a list stands in the place of a key (`{"a": 1, [2]}`).
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
