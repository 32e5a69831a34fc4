import { MillraceError } from '../errors/index.ts'
import { keepHeapSteady } from '../kit/index.ts'
import { HttpDoor, requireKeyBeyondLoopback, RolloutService } from '../serve/index.ts'
import { LagWatch, Logger } from '../telemetry/index.ts'
import type { Invocation } from './command.ts'
import { defaultPort, type ServeFlags } from './commands/serve-command.ts'
import { evaluateOptions } from './evaluate-options.ts'
import { exitCodes, type ExitCode } from './exit-codes.ts'
import { exitNotice } from './exit-notice.ts'
import { Interrupts } from './interrupts.ts'
import type { CommandIo } from './io.ts'
import { StrayErrors } from './stray-errors.ts'

/** A loop that ran so late once is worth a line. */
const lagThresholdMs = 250

/** What `millrace serve` does: from its flags to its exit code. */
export async function carryOutServe(invocation: Invocation<ServeFlags>, io: CommandIo): Promise<ExitCode> {
  keepHeapSteady()
  const { flags } = invocation
  const options = await evaluateOptions(invocation, io)
  const { host = '127.0.0.1' } = flags
  const accessKey = accessKeyOf(flags['access-key-env'], io)
  // Before a run is made for it.
  requireKeyBeyondLoopback(host, accessKey)
  await using logger = new Logger(flags['log-level'] === undefined ? {} : { level: flags['log-level'] })
  const stopping = new AbortController()
  const ended = Promise.withResolvers<'drained' | 'stopped'>()
  let service: RolloutService | undefined
  const stop = (): void => {
    stopping.abort(new MillraceError('cancelled', 'stopped before the server was ready'))
    ended.resolve('stopped')
  }
  using interrupts = new Interrupts(io.events, {
    drain: () => {
      // Before it is ready there is nothing to wait for.
      if (!service) return stop()
      logger.lines.info({ running: service.status().running }, 'draining: running rollouts may end')
      void service.drain().then(() => ended.resolve('drained'))
    },
    stop,
  })
  using _exit = exitNotice(
    io,
    'The same command finishes what was accepted, and would end the same way: with --workers it costs one rollout.',
  )
  using stray = new StrayErrors(io.events, {
    onFirstRejection: (text) => logger.lines.warn(text),
    onException: stop,
  })
  try {
    await using opened = await RolloutService.open({
      ...options,
      ...(flags['max-queued'] !== undefined && { bounds: { maxQueuedRollouts: flags['max-queued'] } }),
      onSettled: (record) => logger.rolloutSettled(opened.info.name, record),
      signal: stopping.signal,
    })
    service = opened
    await using door = await HttpDoor.open({
      service,
      port: flags.port ?? defaultPort,
      host,
      ...(accessKey !== undefined && { accessKey }),
      onFault: (error) => logger.lines.error({ err: error }, 'a request failed'),
    })
    using _lag = watchLag(logger, service)
    announce(io, logger, door, service)
    service.failure.addEventListener('abort', () => ended.resolve('stopped'), { once: true })
    const how = await ended.promise
    if (stray.exception) throw stray.exception
    if (service.failure.aborted) throw service.failure.reason
    // A second signal: replies that still wait are told so before the door closes.
    if (how === 'stopped') await service.close()
    return how === 'drained' ? exitCodes.ok : (interrupts.exitCode ?? exitCodes.failed)
  } catch (error) {
    if (stopping.signal.aborted && interrupts.exitCode !== undefined && !stray.exception) return interrupts.exitCode
    throw error
  }
}

/** A key that was asked for and is not there must not mean that none is needed. */
function accessKeyOf(variable: string | undefined, { env }: CommandIo): string | undefined {
  const key = env[variable ?? 'MILLRACE_API_KEY'] || undefined
  if (key !== undefined || variable === undefined) return key
  throw new MillraceError(
    'usage',
    `--access-key-env names ${variable}, which is not set: set it, or leave out the flag`,
  )
}

function announce(io: CommandIo, logger: Logger, { url }: HttpDoor, { info }: RolloutService): void {
  const { style } = io.stdout
  for (const notice of info.notices) logger.lines.info({ run: info.name }, notice)
  void io.stdout.line(`serving on ${style.bold(url)} (run ${info.name})`)
}

function watchLag(logger: Logger, service: RolloutService): LagWatch {
  return new LagWatch({
    logger,
    thresholdMs: lagThresholdMs,
    loops: () => {
      const { lag, storeLag } = service.status()
      return { front: lag, store: storeLag }
    },
    workers: () => service.status().workers,
  })
}
