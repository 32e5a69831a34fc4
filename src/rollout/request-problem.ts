import { inspect } from 'node:util'
import { unknownField } from '../kit/index.ts'
import { isJsonObject, type Message } from '../schema/index.ts'

/**
 * What is wrong with what an environment's code asks of its context; undefined if it is an object of known fields. Where that code
 * runs there are no types, so nobody else would say it. The first of the names is the one that a request cannot do without.
 */
export function requestProblem(request: unknown, known: Readonly<Record<string, true>>): string | undefined {
  const names = Object.keys(known)
  return isJsonObject(request)
    ? unknownField(request, names)
    : `it takes { ${names[0]}, … }, not ${briefValue(request)}`
}

export function isMessageList(given: unknown): given is readonly Message[] {
  return Array.isArray(given) && given.every(isJsonObject)
}

/** Enough of a wrong value to know it again. */
export function briefValue(value: unknown): string {
  return inspect(value, { depth: 0, maxStringLength: 60 })
}
