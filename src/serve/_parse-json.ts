import { MillraceError } from '../errors/index.ts'
import { depthProblem, utf8Problem } from '../kit/index.ts'

const decoder = new TextDecoder()

/** The value of a body. Fails with `usage` if it is none, not UTF-8, or too deep. */
export function parseJson(bytes: Uint8Array, maxDepth: number): unknown {
  const problem = utf8Problem(bytes) ?? depthProblem(bytes, maxDepth)
  if (problem !== undefined) throw new MillraceError('usage', problem)
  try {
    return JSON.parse(decoder.decode(bytes))
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw new MillraceError('usage', `the body is not JSON: ${rawMessage}`, { cause: error })
  }
}
