import { evaluate } from 'millrace'
import { ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, onTestFinished, test, vi } from 'vitest'
import { RolloutService } from '../../src/serve/index.ts'
import { answer, household } from '../support/telemetry/parent-and-child-environment.ts'

const notice = 'no spans are sent: "collector" is not a valid URL. Write it like http://localhost:4318.'

/** A run whose collector cannot be used. */
async function unusableCollector() {
  vi.stubEnv('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'collector')
  onTestFinished(() => void vi.unstubAllEnvs())
  const runs = await temporaryRuns()
  return {
    options: {
      environment: household,
      model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
      backends: { scripted: [new ScriptedBackend(({ messages }) => answer(messages))] },
      preflight: false,
      run: { root: runs.root },
    },
    [Symbol.asyncDispose]: () => runs[Symbol.asyncDispose](),
  }
}

test('a notice at the start of an evaluation says that no spans are sent', async () => {
  await using run = await unusableCollector()
  const evaluation = evaluate(run.options)
  expect((await evaluation.started).notices).toContain(notice)
  await evaluation.summary()
})

test('a notice at the start of a service says that no spans are sent', async () => {
  await using run = await unusableCollector()
  await using service = await RolloutService.open(run.options)
  expect(service.info.notices).toContain(notice)
})
