import { isAbsolute, relative } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { placeOfError } from './place-of-error.ts'

/** What somebody's code threw. */
export interface Thrown {
  /** What it was: the class of an exception; undefined for errors of ours, whose message says it all. */
  readonly kind: string | undefined
  /** `file:line` in their own files, from the working directory if it is in there. */
  readonly place: string | undefined
  readonly message: string
}

/** For messages to whoever wrote that code. Formats the stack, which takes 20 µs: for what failed only. */
export function describeThrown(thrown: unknown): Thrown {
  const place = placeOfError(thrown)
  return {
    kind: kindOf(thrown),
    place: place === undefined ? undefined : fromHere(place),
    message: MillraceError.from(thrown, 'internal').rawMessage,
  }
}

function kindOf(thrown: unknown): string | undefined {
  if (thrown instanceof MillraceError) return undefined
  if (!(thrown instanceof Error)) return `a value of type ${thrown === null ? 'null' : typeof thrown}`
  try {
    return thrown.name
  } catch {
    // A getter of somebody's own: a failure must not become another one.
    return 'Error'
  }
}

function fromHere(place: string): string {
  try {
    const path = relative(process.cwd(), place)
    return path.startsWith('..') || isAbsolute(path) ? place : path
  } catch {
    // There is no working directory any more.
    return place
  }
}
