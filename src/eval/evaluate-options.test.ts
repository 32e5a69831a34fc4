import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { defineEnvironment } from '../env/index.ts'
import { evaluate } from './evaluate.ts'
import type { EvaluateOptions } from './evaluation.ts'

const environment = defineEnvironment({
  name: 'plain',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => 'hello',
  reward: () => 1,
})

describe('evaluate', () => {
  test.each([
    [{ concurency: 3 }, '`concurency` is not known; did you mean `concurrency`?'],
    [{ colour: 3 }, '`colour` is not known; there are environment, options, model'],
    [{ limits: { maxTurn: 3 } }, 'limits do not fit: `maxTurn` is not known; did you mean `maxTurns`?'],
    [{ sampling: { max_tokens: 3 } }, '`max_tokens` is not known; did you mean `maxTokens`?'],
    [{ run: { folder: 'x' } }, '`run.folder` is not known; there are root, name, resume, retryFailed'],
    [{ workers: 1, supervision: { maxAge: 3 } }, '`supervision.maxAge` is not known; did you mean `maxAgeMs`?'],
  ])('refuses what it does not know: %j', async (misspelt: object, problem) => {
    const module = 'workers' in misspelt ? { environment: 'arithmetic' } : { environment }
    // As from JavaScript: the types refuse most of these.
    const options: EvaluateOptions = Object.assign({ model: 'sim', ...module }, misspelt)
    const evaluation = evaluate(options)
    const refusal = expect.objectContaining({ code: 'config_invalid', rawMessage: expect.stringContaining(problem) })
    await expect(evaluation.started).rejects.toEqual(refusal)
  })
})
