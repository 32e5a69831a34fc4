import type { LoopLagWindow } from '../kit/index.ts'
import { emptyUsage } from '../schema/index.ts'
import type { SittingParts } from './_open-sitting.ts'
import type { Progress } from './progress.ts'
import type { RunControl } from './_run-control.ts'
import { perSecondOf } from './_run-sums.ts'

/** What the caller of a run knows of it. */
interface Outside {
  readonly control: RunControl
  readonly elapsedMs: number
  readonly unread: number
  readonly lag: LoopLagWindow
}

/** How far a run has come, from those parts of its sitting that are open by now. */
export function progressOf(parts: Partial<SittingParts>, { control, elapsedMs, unread, lag }: Outside): Progress {
  const { resolved, opened, executor, sums, taken } = parts
  const accumulator = sums?.accumulator
  const config = resolved?.config
  const ended = sums?.ended ?? 0
  const resumed = taken?.info.resumed ?? 0
  const perSecond = perSecondOf(ended - resumed, sums?.work.elapsedMs ?? 0)
  const total = totalOf(parts)
  return {
    run: opened?.store.run.name ?? '',
    environment: config?.environment.name ?? '',
    model: config?.model ?? '',
    hasToolServers: resolved?.loaded.environment.mcpServers !== undefined,
    elapsedMs,
    total,
    ended,
    resumed,
    unread,
    active: control.active,
    perSecond,
    etaMs: total && perSecond > 0 ? (Math.max(0, total.count - ended) / perSecond) * 1000 : undefined,
    score: accumulator?.estimate(),
    outcomes: accumulator?.outcomes ?? {},
    usage: accumulator ? { ...accumulator.usage } : emptyUsage(),
    cost: accumulator ? accumulator.cost : 0,
    lag,
    storeLag: opened?.store.lag() ?? { p99Ms: 0, maxMs: 0, meanMs: 0, utilization: 0 },
    models: executor?.models() ?? [],
    servers: executor?.servers() ?? [],
    workers: executor?.workers() ?? [],
    state: control.state,
  }
}

function totalOf({ resolved, tasks, sums }: Partial<SittingParts>): Progress['total'] {
  if (!resolved) return undefined
  const { attempts, forkedFrom } = resolved.config
  if (forkedFrom) return { count: attempts, exact: true }
  const total = tasks?.total()
  if (!total) return undefined
  // If a run is continued with fewer tasks, more rollouts may have ended than are to do now.
  return { count: Math.max(total.count * attempts, sums?.accumulator.rollouts ?? 0), exact: total.exact }
}
