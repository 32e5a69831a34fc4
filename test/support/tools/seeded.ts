import { seededRandom } from '../../../src/kit/index.ts'

const variable = 'MILLRACE_TEST_SEED'

/** A story with chance in it, another one each time. If it fails, the error says how to tell the same again. */
export async function seeded(story: (random: (below: number) => number) => Promise<void>): Promise<void> {
  const seed = Number(process.env[variable] ?? Math.floor(Math.random() * 1_000_000))
  const random = seededRandom(seed)
  try {
    await story((below) => Math.floor(random() * below))
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Error(`with ${variable}=${seed}: ${why}`, { cause: error })
  }
}
