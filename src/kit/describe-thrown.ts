import { isAbsolute, relative } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { placeOfError } from './place-of-error.ts'

/** What a user's code threw. */
export interface Thrown {
  /** The class of an exception; undefined for our own errors, whose message says it all. */
  readonly kind: string | undefined
  /** `file:line` in the user's own files, relative to the working directory if it is in there. */
  readonly place: string | undefined
  readonly message: string
}

/** Describes an error to the author of the code. Formats the stack, which takes 20 µs: for failures only. */
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
    // `name` may be a getter of the user's that throws: a failure must not become another one.
    return 'Error'
  }
}

function fromHere(place: string): string {
  try {
    const path = relative(process.cwd(), place)
    return path.startsWith('..') || isAbsolute(path) ? place : path
  } catch {
    // The working directory may be gone.
    return place
  }
}
