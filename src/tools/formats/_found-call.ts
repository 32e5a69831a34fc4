import type { WrittenCall } from '../written-call.ts'

/** A call as it was found in a text. Parts that could not be read are empty. */
export interface FoundCall {
  readonly name: string
  /** The text of the arguments, as written. */
  readonly arguments: string
  readonly server?: string
}

/** Found calls with their ids. */
export function numbered(found: readonly FoundCall[], idBase: string): readonly WrittenCall[] {
  return found.map(({ name, arguments: args, server }, index) => ({
    id: `${idBase}_${index}`,
    type: 'function',
    function: { name, arguments: args },
    ...(server !== undefined && { server }),
  }))
}
