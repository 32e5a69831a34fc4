import { MillraceError } from '../errors/index.ts'

/** Most of what looks at a value calls itself for every level: writing it, validating it, sending it to a worker. */
const maxLevels = 256

const decoder = new TextDecoder()

/** The value of a body. Fails with `usage` if it is none, or one that is too deep. */
export function parseJson(bytes: Uint8Array): unknown {
  let parsed: unknown
  try {
    parsed = JSON.parse(decoder.decode(bytes))
  } catch (error) {
    const { rawMessage } = MillraceError.from(error, 'usage')
    throw new MillraceError('usage', `the body is not JSON: ${rawMessage}`, { cause: error })
  }
  if (isDeeper(parsed, maxLevels)) throw new MillraceError('usage', `a body has at most ${maxLevels} levels of nesting`)
  return parsed
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  return levels === 0 || Object.values(value).some((each) => isDeeper(each, levels - 1))
}
