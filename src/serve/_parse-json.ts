import { MillraceError } from '../errors/index.ts'
import { depthProblem } from '../kit/index.ts'

const decoder = new TextDecoder()

/** The value of a body. Fails with `usage` if it is none, or one that is too deep. */
export function parseJson(bytes: Uint8Array, maxDepth: number): unknown {
  const tooDeep = depthProblem(bytes, maxDepth)
  if (tooDeep !== undefined) throw new MillraceError('usage', tooDeep)
  try {
    return JSON.parse(decoder.decode(bytes))
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw new MillraceError('usage', `the body is not JSON: ${rawMessage}`, { cause: error })
  }
}
