/** Variables as a process has them, given to whoever reads keys, proxies or settings from them. */
export type Variables = Readonly<Record<string, string | undefined>>
