import { MillraceError } from '../errors/index.ts'
import { depthProblem } from './_json-depth.ts'

const decoder = new TextDecoder()

/** The value of a body. Fails with `usage` if it is none, or one that is too deep. */
export function parseJson(bytes: Uint8Array, maxDepth: number): unknown {
  const tooDeep = depthProblem(bytes, maxDepth)
  if (tooDeep) throw tooDeep
  try {
    return JSON.parse(decoder.decode(bytes))
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw new MillraceError('usage', `the body is not JSON: ${rawMessage}`, { cause: error })
  }
}
