/** A part of the page that is fetched when it is first shown, and that takes nothing else down when it breaks. */
import { useSignal } from "@preact/signals";
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Failed } from "../components/Empty";
import { Loading } from "../components/Spinner";

interface Props {
    id: string;
}

/** A component that is loaded when it is first shown. */
export function later(load: () => Promise<{ default: ComponentType<Props> }>): ComponentType<Props> {
    let loaded: ComponentType<Props> | null = null;
    return function Part(props: Props) {
        const error = useSignal<unknown>(null);
        const isThere = useSignal(loaded !== null);
        useEffect(() => {
            if (loaded !== null) return;
            load().then(
                (module) => {
                    loaded = module.default;
                    isThere.value = true;
                },
                (fault: unknown) => (error.value = fault),
            );
        }, []);
        if (error.value !== null) return <Failed error={error.value} onRetry={() => location.reload()} />;
        if (!isThere.value || loaded === null) return <Loading />;
        const Loaded = loaded;
        return (
            <Boundary>
                <Loaded {...props} />
            </Boundary>
        );
    };
}

class Boundary extends Component<{ children: ComponentChildren }, { error: unknown }> {
    override state = { error: null };

    static override getDerivedStateFromError(error: unknown): { error: unknown } {
        return { error };
    }

    override render() {
        if (this.state.error === null) return this.props.children;
        return <Failed error={this.state.error} onRetry={() => this.setState({ error: null })} />;
    }
}
