import { MillraceError } from '../../../errors/index.ts'
import {
  recordedCodeChanges,
  SummaryAccumulator,
  triesOfRun,
  unacceptedSpending,
  UnreadableRollouts,
  ActiveTime,
} from '../../../eval/index.ts'
import { readJudgeCalls } from '../../../rollout/index.ts'
import { isJsonObject, textOf } from '../../../schema/index.ts'
import { type FoundRun, type RunReader, type StoredAttempt, unlessDamaged } from '../../../store/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import type { FlagValues } from '../../command-line/flags.ts'
import { usageError } from '../../command-line/flag-value.ts'
import { findRollout } from '../../stored-runs/find-rollout.ts'
import {
  howFar,
  isGatewayRun,
  locateRun,
  plannedRollouts,
  readRun,
  runsRoot,
  storedConfig,
} from '../../stored-runs/stored-run.ts'
import { type ExitCode, exitCodes } from '../../terminal/exit-codes.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { type Output, DelayedProgress } from '../../terminal/output.ts'
import { type ShownSummary, writeSummary } from '../eval/summary-text.ts'
import { childTree } from './child-tree.ts'
import type { showFlags } from './show-command.ts'
import { parseRange, type RolloutQuery, showRollouts } from './show-rollouts.ts'
import { type ShownRun, showSession, showSessions } from './show-sessions.ts'
import { missingOf, type Transcript, transcriptLines } from './transcript.ts'

const defaultLimit = 20

export async function runShow(
  { arguments: [name = '', rollout], flags }: Invocation<typeof showFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  const asJson = flags.json === true
  await readRun(found, async (reader) => {
    const shown: ShownRun = { found, reader, io, asJson }
    const limit = flags.limit ?? defaultLimit
    const unusedFlag = (['outcome', 'reward', 'turns', 'sort', 'reverse'] as const).find((flag) => flag in flags)
    if (isGatewayRun(found)) {
      const why = `applies to rollouts, but run ${found.name} holds the sessions of a gateway`
      if (unusedFlag !== undefined) throw usageError(`--${unusedFlag} ${why}; leave it out`)
      await (rollout === undefined ? showSessions(limit, shown) : showSession(rollout, shown))
    } else if (rollout !== undefined) {
      if (unusedFlag !== undefined)
        throw usageError(`--${unusedFlag} applies to a list of rollouts; leave it out, or ${rollout}`)
      await showRollout(rollout, shown)
    } else if (unusedFlag === undefined) showSummary(shown)
    else await showRollouts(queryOf(flags, limit), shown)
  })
  return exitCodes.ok
}

function queryOf(flags: FlagValues<typeof showFlags>, limit: number): RolloutQuery {
  const { outcome, reward, turns, sort, reverse } = flags
  if (reverse && sort === undefined) throw usageError('--reverse needs --sort reward, --sort outcome or --sort turns')
  return {
    outcome: outcome === 'any' ? undefined : outcome,
    reward: reward === undefined ? undefined : parseRange('reward', reward),
    turns: turns === undefined ? undefined : parseRange('turns', turns),
    sort,
    isReversed: reverse === true,
    limit,
  }
}

function showSummary({ found, reader, io, asJson }: ShownRun): void {
  const summary = storedSummary(found, reader, { now: Date.now(), stderr: io.stderr })
  const { ended } = reader.counts()
  if (asJson) return void io.stdout.line(JSON.stringify({ ...summary, ...plannedRollouts(found, ended) }))
  writeSummary(summary, io)
  const isOpen = found.run.state !== 'complete' && !storedConfig(found).isServed
  if (isOpen) void io.stdout.line(howFar(found, ended))
}

async function showRollout(given: string, { found, reader, io, asJson }: ShownRun): Promise<void> {
  const rollout = findRollout(given, reader, { found, stderr: io.stderr })
  const attempts = reader.attempts(rollout)
  const accepted = reader.rollout(rollout)
  const shown = attempts.find(({ attempt }) => attempt === accepted?.attempt) ?? attempts.at(-1)
  if (!shown) throw new MillraceError('internal', `rollout ${rollout} was found but has no attempts`)
  const others = attempts.filter(({ attempt }) => attempt !== accepted?.attempt)
  const givenUp = abandonedAttempts(reader, others)
  const transcript: Transcript = {
    rollout,
    record: accepted ?? shown.end?.record,
    waitsFor: accepted || givenUp.has(shown.attempt) ? undefined : missingOf(shown),
    // A child was asked something else.
    taskRow: shown.parent === null ? unlessDamaged(() => reader.task(shown.task)?.row) : undefined,
    nodes: reader.nodes(rollout, shown.attempt),
    attempts,
    givenUp,
    children: childTree(reader, rollout, shown.attempt),
    verdicts: (unlessDamaged(() => readJudgeCalls(reader, rollout, shown.attempt)) ?? []).map(({ model, reply }) => ({
      model,
      said: textOf(reply),
    })),
  }
  if (asJson) {
    const messages = accepted?.messages ?? transcript.nodes.map(({ message }) => message)
    const { record, waitsFor, taskRow, verdicts } = transcript
    const shownAttempts = attempts.map((attempt) => brief(attempt, givenUp.get(attempt.attempt)))
    await io.stdout.line(
      JSON.stringify({ ...record, id: rollout, taskRow, waitsFor, messages, verdicts, attempts: shownAttempts }),
    )
    return
  }
  await io.stdout.lines(transcriptLines(transcript, io.stdout.style))
}

function brief({ attempt, startedAt, end, discarded }: StoredAttempt, givenUp: string | undefined): object {
  const error = unlessDamaged(() => end?.record)?.error
  return { attempt, startedAt, endedAt: end?.at, outcome: end?.outcome, error, discarded, givenUp }
}

/** Why attempts were abandoned, by their numbers. Their rollout was started over. */
function abandonedAttempts(reader: RunReader, attempts: readonly StoredAttempt[]): ReadonlyMap<number, string> {
  const reasons = new Map<number, string>()
  for (const { rollout, attempt } of attempts) {
    const events = unlessDamaged(() => reader.eventsOf(rollout, attempt, 'attempt-abandoned')) ?? []
    const data = events.at(-1)?.data
    if (data !== undefined && isJsonObject(data) && typeof data['why'] === 'string') reasons.set(attempt, data['why'])
  }
  return reasons
}

function storedSummary(
  found: FoundRun,
  reader: RunReader,
  { now, stderr }: { readonly now: number; readonly stderr: Output },
): ShownSummary {
  const config = storedConfig(found)
  const { attempts, passThreshold, isServed } = config
  const accumulator = new SummaryAccumulator({ attemptsPerTask: attempts, passThreshold, isServed })
  const worked = new ActiveTime(found.run.launches)
  using progress = new DelayedProgress(stderr, 'reading results')
  const unreadable = new UnreadableRollouts()
  for (const stored of reader.ended()) {
    progress.add()
    worked.noteEnd(stored.endedAt)
    const record = unreadable.recordOf(stored)
    if (record) accumulator.add(record)
  }
  const wallMs = worked.sumMs(found.run.state === 'running' ? now : undefined)
  return {
    ...accumulator.snapshot(),
    ...unacceptedSpending(reader),
    run: found.name,
    folder: found.folder,
    environment: config.environment,
    model: config.model,
    ...(config.agent && { agent: config.agent }),
    ...(config.forkedFrom && { forkedFrom: config.forkedFrom }),
    end: endOf(found),
    // A server's clients may ask for a task again.
    repeatedTaskIds: isServed ? [] : reader.repeatedTaskIds(),
    changedCode: recordedCodeChanges(found.run),
    ...unreadable.snapshot(),
    wallMs,
    perSecond: wallMs > 0 ? (accumulator.rollouts / wallMs) * 1000 : 0,
    tries: triesOfRun(found.run),
  }
}

const interruptions = ['drained', 'stopped', 'max_cost', 'failed'] as const

function endOf({ run }: FoundRun): ShownSummary['end'] {
  if (run.state !== 'unfinished') return run.state
  const end = run.launches.at(-1)?.end
  return interruptions.find((known) => known === end) ?? 'unfinished'
}
