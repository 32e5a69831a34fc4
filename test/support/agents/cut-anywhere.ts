import { evaluate, replayRun, type Environment, type RolloutRecord } from 'millrace'
import { ScriptedBackend, temporaryRuns, type Script } from 'millrace/testing'
import { openRun, scripted, storeRun } from '../replay/stored-runs.ts'

export interface CutRun {
  /** The request that the run was stopped at; the whole run has none. */
  readonly cutAt: number | undefined
  readonly record: ReturnType<typeof factsOf> | undefined
  readonly replay: readonly string[]
}

/**
 * Runs the first task once as a whole, and once for each request of that: stopped there, resumed, and replayed. The script
 * must answer by what it is asked.
 */
export async function cutAnywhere(environment: Environment, script: Script): Promise<readonly CutRun[]> {
  await using runs = await temporaryRuns()
  const { backend } = await storeRun(runs.root, { environment, script, limit: 1, name: 'whole' })
  const results = [await result(runs.root, 'whole', { environment, cutAt: undefined })]
  for (const cutAt of backend.requests.keys()) {
    const name = `cut-${cutAt}`
    const stop = new AbortController()
    let asked = 0
    const launch = (spoken: Script, signal?: AbortSignal) =>
      evaluate({
        environment,
        limit: 1,
        preflight: false,
        retries: 0,
        model: scripted,
        backends: { scripted: [new ScriptedBackend(spoken)] },
        run: { root: runs.root, name },
        ...(signal && { signal }),
      }).summary()
    await launch((request) => {
      asked += 1
      if (asked <= cutAt) return script(request)
      stop.abort()
      return new Promise((_, reject) => request.signal.addEventListener('abort', () => reject(request.signal.reason)))
    }, stop.signal)
    await launch(script)
    results.push(await result(runs.root, name, { environment, cutAt }))
  }
  return results
}

async function result(
  root: string,
  name: string,
  { environment, cutAt }: { environment: Environment; cutAt: number | undefined },
): Promise<CutRun> {
  using reader = openRun(root, name)
  const record = reader.rollout('0-0')
  const reports = await Array.fromAsync(replayRun(reader, { environment }))
  const replay = reports.map(({ verdict, differences }) =>
    [verdict, ...differences.map((each) => JSON.stringify(each))].join(' '),
  )
  return { cutAt, record: record && factsOf(record), replay }
}

/** Whatever must be the same however often a rollout was cut off. */
function factsOf({ attempt, outcome, reward, messages, turns, children, usage, cost, toolCalls }: RolloutRecord) {
  return { attempt, outcome, reward, messages, turns, children, usage, cost, toolCalls }
}
