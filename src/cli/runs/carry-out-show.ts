import { MillraceError } from '../../errors/index.ts'
import { readJudgeCalls } from '../../rollout/index.ts'
import { textOf } from '../../schema/index.ts'
import { unlessDamaged, type FoundRun, type StoredAttempt } from '../../store/index.ts'
import { writeSummary } from '../eval/output/write-summary.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { usageError } from '../command-line/flag-value.ts'
import { findRollout } from './find-rollout.ts'
import { givenUpAttempts } from './given-up.ts'
import { showSession, showSessions, type ShownRun } from './show-gateway.ts'
import { parseRange, showRollouts, type RolloutQuery } from './show-rollouts.ts'
import { howFar, plannedRollouts } from './next-step.ts'
import { isGatewayRun, locateRun, readRun, runsRoot, storedConfig } from './stored-run.ts'
import { storedSummary } from './stored-summary.ts'
import { missingOf, transcriptLines, type Transcript } from './transcript.ts'
import type { FlagValues, Invocation } from '../command-line/command.ts'
import type { CommandIo } from '../process/io.ts'
import type { showFlags } from '../commands/show-command.ts'

const defaultLimit = 20

/** Carries out `millrace show`: from its flags to its exit code. */
export async function carryOutShow(
  { arguments: [name = '', rollout], flags }: Invocation<typeof showFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  const asJson = flags.json === true
  await readRun(found, io, async (reader) => {
    const shown: ShownRun = { found, reader, io, asJson }
    const limit = flags.limit ?? defaultLimit
    const stray = (['outcome', 'reward', 'turns', 'sort', 'reverse'] as const).find((flag) => flag in flags)
    if (isGatewayRun(found)) {
      if (stray !== undefined) throw notForSessions(stray, found)
      await (rollout === undefined ? showSessions(limit, shown) : showSession(rollout, shown))
    } else if (rollout !== undefined) {
      if (stray !== undefined) throw usageError(`--${stray} is for a list of rollouts; leave it out, or ${rollout}`)
      await showRollout(rollout, shown)
    } else if (stray === undefined) showSummary(shown)
    else await showRollouts(queryOf(flags, limit), shown)
  })
  return exitCodes.ok
}

function queryOf(flags: FlagValues<typeof showFlags>, limit: number): RolloutQuery {
  const { outcome, reward, turns, sort, reverse } = flags
  if (reverse && sort === undefined) throw usageError('--reverse needs --sort reward, --sort outcome or --sort turns')
  return {
    ...(outcome !== undefined && outcome !== 'any' && { outcome }),
    ...(reward !== undefined && { reward: parseRange('reward', reward) }),
    ...(turns !== undefined && { turns: parseRange('turns', turns) }),
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
  if (!shown) throw new MillraceError('internal', `${rollout} was found and is not there`)
  const givenUp = givenUpAttempts(
    reader,
    attempts.filter(({ attempt }) => attempt !== accepted?.attempt),
  )
  const transcript: Transcript = {
    rollout,
    record: accepted ?? shown.end?.record,
    waitsFor: accepted || givenUp.has(shown.attempt) ? undefined : missingOf(shown),
    // A child was asked something else.
    taskRow: shown.parent === null ? unlessDamaged(() => reader.task(shown.task)?.row) : undefined,
    nodes: reader.nodes(rollout, shown.attempt),
    attempts,
    givenUp,
    children: reader.children(rollout).filter(({ attempt }) => attempt === shown.attempt),
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
  for (const line of transcriptLines(transcript, io.stdout.style)) {
    if (io.stdout.readerGone.aborted) return
    await io.stdout.line(line)
  }
}

function notForSessions(flag: string, { name }: FoundRun): MillraceError {
  return usageError(`--${flag} is for rollouts, and run ${name} holds the sessions of a gateway; leave it out`)
}

function brief({ attempt, startedAt, end, discarded }: StoredAttempt, givenUp: string | undefined): object {
  const error = unlessDamaged(() => end?.record)?.error
  return { attempt, startedAt, endedAt: end?.at, outcome: end?.outcome, error, discarded, givenUp }
}
