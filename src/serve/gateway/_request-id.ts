import { randomBytes } from 'node:crypto'

/** What can stand in a header, a log and a file name. */
const sane = /^[\w.:-]{1,128}$/

const prefix = `req_${randomBytes(6).toString('hex')}`
let made = 0

/** The client's own name for its request if it has a usable one, else a new one: unique among all processes. */
export function requestIdOf(given: string | string[] | undefined): string {
  if (typeof given === 'string' && sane.test(given)) return given
  made += 1
  return `${prefix}${made.toString(36).padStart(6, '0')}`
}
